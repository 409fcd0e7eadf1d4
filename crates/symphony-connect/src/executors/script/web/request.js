// What a route's request has besides its fields: its body as text, JSON or bytes, and what has several values.
export default (function (call, part) {
  "use strict";
  // More than browsers keep of one site; each is looked for in what the run logs.
  const COOKIES_MAX = 200;
  // Whoever writes a request into the outbox by hand may leave them out.
  const isJson = (payload) => {
    const kind = `${payload.headers?.["content-type"] ?? ""}`.split(";")[0].trim().toLowerCase();
    return kind === "application/json" || kind.endsWith("+json");
  };
  const encoded = (text) => new (part("encoding.js").TextEncoder)().encode(text);
  const decoded = (bytes) => new (part("encoding.js").TextDecoder)().decode(bytes);

  const bytes = (payload) => {
    return payload.bodyBase64 === undefined ? encoded(text(payload)) : Uint8Array.fromBase64(payload.bodyBase64);
  };
  const text = (payload) => {
    if (payload.bodyBase64 !== undefined) return decoded(bytes(payload));
    const body = payload.body ?? null;
    if (body === null) return "";
    return typeof body === "string" && !isJson(payload) ? body : JSON.stringify(body);
  };
  const json = (payload) => {
    if (payload.bodyBase64 !== undefined) return JSON.parse(text(payload));
    const body = payload.body ?? null;
    return isJson(payload) || (typeof body !== "string" && body !== null) ? body : JSON.parse(text(payload));
  };
  // From here on they are left out of whatever the run says.
  const kept = (unstored) => {
    for (const name of Object.keys(unstored)) call("keep_header", name, unstored[name]);
    return unstored;
  };
  const cookies = (payload, unstored) => {
    const header = kept(unstored).cookie ?? payload.headers?.cookie;
    if (header === undefined && payload.headersNotStored?.includes("cookie")) {
      throw new Error("request.cookies: the Cookie header is not stored, and only the process that serves the client has it");
    }
    const pairs = (header ?? "").split(";");
    if (pairs.length > COOKIES_MAX) throw new Error(`request.cookies: there are more than ${COOKIES_MAX}`);
    const found = {};
    for (const pair of pairs) {
      const end = pair.indexOf("=");
      const name = pair.slice(0, Math.max(end, 0)).trim();
      // The first one of a name is that of the longest path.
      if (name === "" || Object.hasOwn(found, name)) continue;
      const value = pair.slice(end + 1).trim().replace(/^"(.*)"$/, "$1");
      call("keep_cookie", name, value);
      Object.defineProperty(found, name, { __proto__: null, value, enumerable: true, writable: true, configurable: true });
    }
    return found;
  };
  return {
    bytes,
    text,
    json,
    cookies,
    headers: (payload, unstored) => new (part("headers.js").Headers)({ ...payload.headers, ...kept(unstored) }),
    query: (payload) => new (part("url.js").URLSearchParams)(payload.queryString ?? ""),
  };
});
