// The host API, as scripts see it. Runs before the script, in the same realm: whatever it uses later is taken
// here, because the script may change every prototype. Only strings pass to the host and back.
export default (function (host) {
  "use strict";
  const { parse, stringify } = JSON;
  const { freeze, defineProperty } = Object;
  const { apply } = Reflect;
  const { slice, isWellFormed, toWellFormed } = String.prototype;
  const HostTypeError = TypeError;
  const HostError = Error;
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

  const kv = {
    get: (key) => {
      const found = call("kv_get", text(key, "key"));
      return found === "" ? null : parse(found);
    },
    set: (key, value) => {
      call("kv_set", text(key, "key"), json(value, "value"));
    },
    delete: (key) => {
      call("kv_delete", text(key, "key"));
    },
    list: (prefix) => {
      return parse(call("kv_list", prefix === undefined ? "" : text(prefix, "prefix")));
    },
  };
  const queue = {
    send: (queue, message) => {
      call("queue_send", text(queue, "queue"), json(message, "message"));
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
  const email = {
    send: (message) => {
      object(message, "message");
      const to = json(message.to, "message.to");
      const subject = text(message.subject, "message.subject");
      call("email_send", to, subject, text(message.text, "message.text"));
    },
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
      if (given.body !== undefined) body = text(given.body, "options.body");
    }
    const answer = parse(call("fetch", text(url, "url"), method, headers, body));
    const content = answer.body;
    return freeze({
      status: answer.status,
      ok: answer.status >= 200 && answer.status < 300,
      headers: freeze(answer.headers),
      text: freeze(() => content),
      json: freeze(() => parse(content)),
    });
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

  // For the host alone. The promise of an async function is the engine's own, and it is settled with a string, so
  // that neither a poisoned "then" nor a poisoned constructor comes between.
  const run = async (handler, request) => {
    const made = stringify(await handler(parse(request)));
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
