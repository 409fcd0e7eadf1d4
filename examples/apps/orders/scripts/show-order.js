// GET /orders/{id}: the order as it was kept.
export default function (request) {
  const order = kv.get(`order/${request.payload.params.id}`);
  return order ? { status: 200, body: order } : { status: 404, body: { error: "no such order" } };
}
