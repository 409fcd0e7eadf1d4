// GET /links/{code}: where it leads, and how often it was followed.
export default function (request) {
  const { code } = request.payload.params;
  const link = kv.get(`link/${code}`);
  if (!link) return { status: 404, body: { error: "no such link" } };
  return { status: 200, body: { code, url: link.url, clicks: kv.get(`clicks/${code}`) ?? 0 } };
}
