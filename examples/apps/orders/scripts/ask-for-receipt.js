// An entry order/… was written: ask for its receipt, once, when it is new.
export default function (request) {
  const { operation, value, previous } = request.payload;
  if (operation === "set" && !previous) queue.send("receipts", value);
}
