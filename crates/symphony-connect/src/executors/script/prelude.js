// The host API, as scripts see it. Runs before the script, in the same realm: whatever it uses later is taken
// here, because the script may change every prototype. Only strings pass to the host and back.
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
  const text = (value, name) => {
    if (typeof value !== "string") throw new HostTypeError(name + " must be a string");
    if (!apply(isWellFormed, value, nothing)) {
      throw new HostTypeError(name + " must be well-formed text: it has half of a surrogate pair");
    }
    return value;
  };
  const json = (value, name) => {
    const made = stringify(value);
    if (typeof made !== "string") {
      throw new HostTypeError(name + " must be something that JSON can hold");
    }
    return made;
  };
  const object = (value, name) => {
    if (typeof value !== "object" || value === null) {
      throw new HostTypeError(name + " must be an object");
    }
    return value;
  };

  const notEmpty = (value, name) => {
    if (text(value, name) === "") throw new HostTypeError(name + " must not be empty");
    return value;
  };
  const whole = (value, name) => {
    if (!isSafeInteger(value)) throw new HostTypeError(name + " must be a whole number");
    return "" + value;
  };
  // An option that may be left out.
  const option = (options, name, read) => {
    if (options === undefined) return "";
    const value = object(options, "options")[name];
    return value === undefined ? "" : read(value, "options." + name);
  };
  const ttl = (options) => option(options, "ttlSeconds", whole);
  // Both were made by JSON.parse.
  const same = (a, b) => {
    if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a === b;
    if (isArray(a) !== isArray(b)) return false;
    const names = keys(a);
    if (names.length !== keys(b).length) return false;
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      if (!hasOwn(b, name) || !same(a[name], b[name])) return false;
    }
    return true;
  };

  const kv = {
    get: (key) => {
      const found = call("kv_get", text(key, "key"));
      return found === "" ? null : parse(found);
    },
    getWithVersion: (key) => parse(call("kv_get_with_version", text(key, "key"))),
    set: (key, value, options) => {
      call("kv_set", text(key, "key"), json(value, "value"), ttl(options));
    },
    delete: (key) => {
      call("kv_delete", text(key, "key"));
    },
    increment: (key, by, options) => {
      call("kv_increment", text(key, "key"), by === undefined ? "1" : whole(by, "by"), ttl(options));
    },
    setIfAbsent: (key, value, options) => {
      const made = [text(key, "key"), json(value, "value"), ttl(options)];
      if (call("kv_look", made[0]) !== "") {
        call("kv_note");
        return false;
      }
      call("kv_set_if_absent", made[0], made[1], made[2]);
      return true;
    },
    compareAndSet: (key, expected, value, options) => {
      const made = [text(key, "key"), json(expected, "expected"), json(value, "value"), ttl(options)];
      const found = call("kv_look", made[0]);
      if (!same(found === "" ? null : parse(found), parse(made[1]))) {
        call("kv_note");
        return false;
      }
      call("kv_compare_and_set", made[0], made[1], made[2], made[3]);
      return true;
    },
    compareVersionAndSet: (key, version, value, options) => {
      const made = [text(key, "key"), json(value, "value"), ttl(options)];
      if (version !== null) text(version, "version");
      if (parse(call("kv_get_with_version", made[0])).version !== version) return false;
      call("kv_set", made[0], made[1], made[2]);
      return true;
    },
    list: (prefix, options) => {
      const begin = prefix === undefined ? "" : text(prefix, "prefix");
      return parse(call("kv_list", begin, option(options, "after", text), option(options, "limit", whole)));
    },
  };
  const queue = {
    send: (queue, message, options) => {
      call("queue_send", text(queue, "queue"), json(message, "message"), option(options, "key", notEmpty));
    },
  };
  const pubsub = {
    publish: (topic, message) => {
      call("pubsub_publish", text(topic, "topic"), json(message, "message"));
    },
  };
  const events = {
    publish: (event) => {
      call("event_publish", json(object(event, "event"), "event"));
    },
  };
  // An attachment's content is text or bytes; the host gets it in base64.
  const bytesOf = (data) => {
    if (isView(data)) return new Bytes(data.buffer, data.byteOffset, data.byteLength);
    return data instanceof HostArrayBuffer ? new Bytes(data) : undefined;
  };
  const attached = (attachments) => {
    if (attachments === undefined) return undefined;
    if (!isArray(attachments)) throw new HostTypeError("message.attachments must be a list");
    const made = [];
    for (let i = 0; i < attachments.length; i++) {
      const at = "message.attachments[" + i + "]";
      const { name, contentType, content } = object(attachments[i], at);
      const bytes = bytesOf(content);
      const contentBase64 =
        bytes === undefined ? call("web_encode", text(content, at + ".content")) : apply(toBase64, bytes, nothing);
      defineProperty(made, i, { __proto__: null, value: { name, contentType, contentBase64 }, enumerable: true });
    }
    return made;
  };
  const email = {
    send: (message) => {
      object(message, "message");
      const to = json(message.to, "message.to");
      const subject = text(message.subject, "message.subject");
      const plain = text(message.text, "message.text");
      const { cc, bcc, replyTo, html, attachments } = message;
      const more = { cc, bcc, replyTo, html, attachments: attached(attachments) };
      call("email_send", to, subject, plain, json(more, "message"));
    },
  };

  // What the server answered, read in whatever form is asked for.
  const response = ({ status, headers, body, bodyBase64 }) => {
    let made;
    const bytes = () => apply(fromBase64, Bytes, [bodyBase64 ?? call("web_encode", body)]);
    const read = () => {
      if (bodyBase64 !== undefined) return new (part("encoding.js").TextDecoder)().decode(bytes());
      return body[0] === "\ufeff" ? apply(slice, body, one) : body;
    };
    return {
      status,
      ok: status >= 200 && status < 300,
      get headers() {
        return (made ??= part("headers.js").received(headers));
      },
      text: freeze(read),
      json: freeze(() => parse(read())),
      bytes: freeze(bytes),
      arrayBuffer: freeze(() => bytes().buffer),
    };
  };
  // It is there already, and may be waited for all the same: a promise is fulfilled with what cannot be waited for.
  const awaitable = (answer) => {
    const parts = getOwnPropertyDescriptors(answer);
    const plain = freeze(answer);
    const promise = () => apply(resolve, HostPromise, [plain]);
    const waited = (name) => ({
      __proto__: null,
      value: freeze((...given) => apply(waits[name], promise(), given)),
    });
    const more = { then: waited("then"), catch: waited("catch"), finally: waited("finally") };
    return freeze(create(ObjectPrototype, { __proto__: null, ...parts, ...more }));
  };
  const fetch = (url, options) => {
    let method = "GET";
    let headers = "{}";
    let body = "";
    if (options !== undefined) {
      object(options, "options");
      const given = { method: options.method, headers: options.headers, body: options.body };
      if (given.method !== undefined) method = text(given.method, "options.method");
      if (given.headers !== undefined) headers = json(given.headers, "options.headers");
      if (given.body !== undefined) body = sent(given.body);
    }
    return awaitable(response(parse(call("fetch", text(url, "url"), method, headers, body))));
  };
  // Its first character says what it is: t text, b bytes in base64.
  const sent = (body) => {
    const bytes = bytesOf(body);
    if (bytes !== undefined) return "b" + apply(toBase64, bytes, nothing);
    if (typeof body !== "string") throw new HostTypeError("options.body must be a string or bytes");
    return "t" + text(body, "options.body");
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
  const logAt = (level) => (...values) => {
    let line = "";
    for (let i = 0; i < values.length; i++) line += (i === 0 ? "" : " ") + inWords(values[i]);
    call("log", level, apply(toWellFormed, line, nothing));
  };
  const log = logAt("info");
  const console = {
    log,
    info: log,
    debug: logAt("debug"),
    warn: logAt("warn"),
    error: logAt("error"),
  };

  // A script reads those it names. One that is not there is an error, and not undefined.
  const secrets = new HostProxy(
    { __proto__: null },
    {
      __proto__: null,
      get: (target, name) => (typeof name === "string" ? call("secret", name) : undefined),
      set: () => false,
      defineProperty: () => false,
    },
  );

  const offer = (name, value) => {
    defineProperty(globalThis, name, { value, enumerable: true, writable: false, configurable: false });
  };
  const offerAll = (name, functions) => {
    for (const key in functions) freeze(functions[key]);
    offer(name, freeze(functions));
  };
  offerAll("kv", kv);
  offerAll("queue", queue);
  offerAll("pubsub", pubsub);
  offerAll("events", events);
  offerAll("email", email);
  offerAll("console", console);
  offer("fetch", freeze(fetch));
  offer("log", log);
  offer("secrets", secrets);

  // Globals of the web are made when a script first asks for one. A script may put its own in their place.
  const made = { __proto__: null };
  const part = (file) => (made[file] ??= load(file)(call, part));
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
