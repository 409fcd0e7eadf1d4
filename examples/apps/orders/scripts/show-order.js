// GET /orders/{id}: what was ordered, and not by whom.
export default function (request) {
  const order = kv.get(`order/${request.payload.params.id}`);
  if (!order) return { status: 404, body: { error: "no such order" } };
  return { status: 200, body: { id: order.id, item: order.item } };
}
