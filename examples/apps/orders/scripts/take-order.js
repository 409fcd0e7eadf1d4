// POST /orders: keep the order and answer. Its receipt follows by itself: see ask-for-receipt.js.
export default function (request) {
  const { id, email, item } = request.payload.body ?? {};
  if (!fits(id, /^[A-Za-z0-9-]{1,40}$/)) return refuse(400, "id must be letters, digits and hyphens");
  if (!fits(email, /^[^\s@<>,;]{1,64}@[^\s@<>,;]{1,180}$/)) return refuse(400, "email must be an address");
  if (!fits(item, /^.{1,200}$/)) return refuse(400, "item must be one line that says what is ordered");

  const known = kv.get(`order/${id}`);
  // A client may repeat its request; another order under the same id is somebody else's.
  if (known && (known.email !== email || known.item !== item)) return refuse(409, "another order has this id");
  if (!known) {
    // An item without an entry stock/… is never sold out. If others take one meanwhile, this runs again.
    const left = kv.get(`stock/${item}`);
    if (left !== null && left < 1) return refuse(409, "sold out");
    if (left !== null) kv.set(`stock/${item}`, left - 1);
    kv.set(`order/${id}`, { id, email, item });
  }
  return {
    status: known ? 200 : 201,
    headers: { location: `/apps/${request.app}/orders/${id}` },
    body: { id, item },
  };
}

const fits = (value, pattern) => typeof value === "string" && pattern.test(value);
const refuse = (status, error) => ({ status, body: { error } });
