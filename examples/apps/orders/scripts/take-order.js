// POST /orders: keep the order and answer. The receipt comes later, and only if this was committed.
export default function (request) {
  const { id, email, item } = request.payload.body ?? {};
  if (!/^[A-Za-z0-9-]{1,40}$/.test(id)) return bad("id must be letters, digits and hyphens");
  if (!/^[^\s@]+@[^\s@]+$/.test(email)) return bad("email must be an address");
  if (typeof item !== "string" || item === "") return bad("item must say what is ordered");

  // The same order again changes nothing, so that a client may repeat its request.
  const known = kv.get(`order/${id}`);
  const order = known ?? { id, email, item };
  if (!known) kv.set(`order/${id}`, order);
  return {
    status: known ? 200 : 201,
    headers: { location: `/apps/${request.app}/orders/${id}` },
    body: order,
  };
}

const bad = (error) => ({ status: 400, body: { error } });
