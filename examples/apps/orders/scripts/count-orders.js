// Every night: how many orders there are.
export default function () {
  const orders = kv.list("order/").length;
  kv.set("statistics/orders", { orders });
  log(`${orders} orders`);
}
