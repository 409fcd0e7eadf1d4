// One message of the queue: one email. It leaves if this run is committed, and not before.
export default function (request) {
  const { id, email: to, item } = request.payload.message;
  email.send({ to, subject: `Your order ${id}`, text: `Thank you. You ordered: ${item}\n` });
}
