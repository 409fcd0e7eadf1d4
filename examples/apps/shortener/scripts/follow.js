// GET /{code}: on to the long URL. The click is counted with this answer, or neither happens.
export default function (request) {
  const { code } = request.payload.params;
  const link = kv.get(`link/${code}`);
  if (!link) return { status: 404, body: { error: "no such link" } };
  // Added to when the run is committed: clients do not wait for each other's clicks.
  kv.increment(`clicks/${code}`);
  return { status: 302, headers: { location: link.url } };
}
