// What is there before a script runs, in the same realm: whatever is used later is taken here, because the script
// may change every prototype. The rest (host.js, and the globals of the web) is read when a script first asks for
// it, so that a script that asks for none pays nothing. Only strings pass to the host and back.
export default (function (host, load) {
  "use strict";
  const { parse, stringify } = JSON;
  const { create, freeze, defineProperty, getOwnPropertyDescriptors, hasOwn, keys, setPrototypeOf } = Object;
  const ObjectPrototype = Object.prototype;
  const { isArray } = Array;
  const { isSafeInteger } = Number;
  const { apply } = Reflect;
  const { slice, isWellFormed, toWellFormed } = String.prototype;
  const HostArrayBuffer = ArrayBuffer;
  const Bytes = Uint8Array;
  const { isView } = ArrayBuffer;
  const { fromBase64 } = Uint8Array;
  const { toBase64 } = Uint8Array.prototype;
  const HostPromise = Promise;
  const { resolve } = Promise;
  const { then, catch: caught, finally: ended } = Promise.prototype;
  const waits = { __proto__: null, then, catch: caught, finally: ended };
  const HostTypeError = TypeError;
  const HostError = Error;
  const HostProxy = Proxy;
  const nothing = [];
  const one = [1];
  freeze(nothing);
  freeze(one);

  // An answer's first character says what it is: = a value, T wrong arguments, E a failure.
  const call = (operation, a = "", b = "", c = "", d = "") => {
    const answer = host(operation, a, b, c, d);
    const rest = apply(slice, answer, one);
    if (answer[0] === "T") throw new HostTypeError(rest);
    if (answer[0] === "E") throw new HostError(rest);
    return rest;
  };
  const bytesOf = (data) => {
    if (isView(data)) return new Bytes(data.buffer, data.byteOffset, data.byteLength);
    return data instanceof HostArrayBuffer ? new Bytes(data) : undefined;
  };
  const inWords = (value) => {
    try {
      if (typeof value === "string") return value;
      if (typeof value === "symbol" || typeof value === "function") return "[" + typeof value + "]";
      if (typeof value !== "object" || value === null) return "" + value;
      if (value instanceof HostError) return value.name + ": " + value.message;
      const made = stringify(value);
      return typeof made === "string" ? made : "[object]";
    } catch (error) {
      return "[unreadable]";
    }
  };
  // What was there before the script, for what is read later.
  const own = {
    __proto__: null,
    ObjectPrototype, HostArrayBuffer, Bytes, HostPromise, HostTypeError, HostError, HostProxy,
    parse, stringify, create, freeze, defineProperty, getOwnPropertyDescriptors, hasOwn, keys,
    isArray, isSafeInteger, isView, isWellFormed, toWellFormed, fromBase64, toBase64,
    apply, slice, resolve, waits, nothing, one, bytesOf, inWords,
  };
  const made = { __proto__: null };
  const part = (file) => (made[file] ??= load(file)(call, part, own));
  const offer = (name) => {
    const get = freeze(() => part("host.js")[name]);
    defineProperty(globalThis, name, { get, enumerable: true, configurable: false });
  };
  offer("kv");
  offer("queue");
  offer("pubsub");
  offer("events");
  offer("email");
  offer("console");
  offer("fetch");
  offer("log");
  offer("secrets");

  // A script may put its own in the place of a global of the web.
  const offerLazily = (file, name) => {
    const put = (value) => {
      defineProperty(globalThis, name, { __proto__: null, value, writable: true, configurable: true });
    };
    const get = () => {
      put(part(file)[name]);
      return part(file)[name];
    };
    defineProperty(globalThis, name, { get, set: put, configurable: true });
  };
  offerLazily("clone.js", "structuredClone");
  offerLazily("crypto.js", "CryptoKey");
  offerLazily("crypto.js", "crypto");
  offerLazily("encoding.js", "TextDecoder");
  offerLazily("encoding.js", "TextEncoder");
  offerLazily("headers.js", "Headers");
  offerLazily("url.js", "URL");
  offerLazily("url.js", "URLSearchParams");

  // What a route's request can be asked for besides its fields.
  const askable = (request) => {
    // Headers that are never stored are no field of it: what is written down as a whole must not have them.
    const { unstoredHeaders = {} } = request;
    delete request.unstoredHeaders;
    const ask = (what) => part("request.js")[what](request.payload, unstoredHeaders);
    const asked = {
      get headers() {
        return ask("headers");
      },
      get query() {
        return ask("query");
      },
      get cookies() {
        return ask("cookies");
      },
      text: () => ask("text"),
      json: () => ask("json"),
      bytes: () => ask("bytes"),
    };
    return setPrototypeOf(request, asked);
  };
  // JSON has no bytes: a route's answer whose body is bytes says them in base64.
  const sendable = (answer) => {
    if (typeof answer !== "object" || answer === null) return answer;
    const bytes = bytesOf(answer.body);
    return bytes === undefined ? answer : { ...answer, body: undefined, bodyBase64: apply(toBase64, bytes, nothing) };
  };

  // For the host alone. The promise of an async function is the engine's own, and it is settled with a string, so
  // that neither a poisoned "then" nor a poisoned constructor comes between.
  const run = async (handler, request) => {
    const given = parse(request);
    const isRoute = given.sourceKind === "http";
    const answer = await handler(isRoute ? askable(given) : given);
    const made = stringify(isRoute ? sendable(answer) : answer);
    return made === undefined ? "null" : made;
  };
  const plain = (value, otherwise) =>
    typeof value === "string" ? apply(toWellFormed, value, nothing) : otherwise;
  const describe = (error) => {
    let name = "thrown";
    let message = "";
    let stack = "";
    try {
      if (typeof error === "object" && error !== null) {
        const given = { name: error.name, message: error.message, stack: error.stack };
        name = plain(given.name, "Error");
        message = plain(given.message, "");
        stack = plain(given.stack, "");
      } else {
        message = plain(inWords(error), "");
      }
    } catch (unreadable) {
      message = "an error that cannot be read";
    }
    host("describe", name, message, stack, "");
  };
  return (what, a, b) => (what === "run" ? run(a, b) : describe(a));
});
