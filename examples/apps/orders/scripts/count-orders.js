// Every night: how many orders there are. kv.list answers a thousand keys at most, and goes on after the last.
export default function () {
  let orders = 0;
  for (let keys = kv.list("order/"); keys.length > 0; keys = kv.list("order/", { after: keys.at(-1) })) {
    orders += keys.length;
  }
  kv.set("statistics/orders", { orders });
  log(`${orders} orders`);
}
