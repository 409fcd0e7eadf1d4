// POST /links: keep a long URL under a short code, the client's own or a new one.
export default function (request) {
  const { url: given, code = request.executionId.slice(-8) } = request.payload.body ?? {};
  // As URLs write it: a header has no umlaut, and a link that cannot be followed is none.
  const url = URL.parse(given)?.href;
  if (!fits(url, /^https?:\/\/.{1,2000}$/)) return refuse(400, "url must be a URL that begins with https:// or http://");
  if (!fits(code, /^[A-Za-z0-9-]{1,40}$/)) return refuse(400, "code must be letters, digits and hyphens");

  // Of two clients that ask for one code at once, one hears that it is taken.
  if (!kv.setIfAbsent(`link/${code}`, { url })) return refuse(409, "this code is taken");
  return { status: 201, headers: { location: `/apps/${request.app}/${code}` }, body: { code, url } };
}

const fits = (value, pattern) => typeof value === "string" && pattern.test(value);
const refuse = (status, error) => ({ status, body: { error } });
