// What a route's request has besides its fields: its body as text, JSON or bytes, and what has several values.
export default (function (call, part) {
  "use strict";
  const isJson = (headers) => {
    const kind = (headers["content-type"] ?? "").split(";")[0].trim().toLowerCase();
    return kind === "application/json" || kind.endsWith("+json");
  };
  const encoded = (text) => new (part("encoding.js").TextEncoder)().encode(text);
  const decoded = (bytes) => new (part("encoding.js").TextDecoder)().decode(bytes);

  const bytes = (payload) => {
    return payload.bodyBase64 === undefined ? encoded(text(payload)) : Uint8Array.fromBase64(payload.bodyBase64);
  };
  const text = (payload) => {
    if (payload.bodyBase64 !== undefined) return decoded(bytes(payload));
    if (payload.body === null) return "";
    return isJson(payload.headers) ? JSON.stringify(payload.body) : payload.body;
  };
  const json = (payload) => {
    const isRead = payload.bodyBase64 === undefined && isJson(payload.headers);
    return isRead ? payload.body : JSON.parse(text(payload));
  };
  const cookies = (payload) => {
    const found = {};
    for (const pair of (payload.headers.cookie ?? "").split(";")) {
      const end = pair.indexOf("=");
      const name = pair.slice(0, Math.max(end, 0)).trim();
      // The first one of a name is that of the longest path.
      if (name === "" || Object.hasOwn(found, name)) continue;
      const value = pair.slice(end + 1).trim().replace(/^"(.*)"$/, "$1");
      Object.defineProperty(found, name, { __proto__: null, value, enumerable: true, writable: true, configurable: true });
    }
    return found;
  };
  return {
    bytes,
    text,
    json,
    cookies,
    headers: (payload) => new (part("headers.js").Headers)(payload.headers),
    query: (payload) => new (part("url.js").URLSearchParams)(payload.queryString ?? ""),
  };
});
