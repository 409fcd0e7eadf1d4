// structuredClone, as the HTML Standard has it, for all that this engine has.
export default (function () {
  "use strict";
  const BOXED = [Boolean, Number, String, BigInt];
  const ERRORS = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
  const refuse = (what) => {
    throw new DOMException(what + " cannot be cloned", "DataCloneError");
  };

  const bufferOf = (buffer, seen) => {
    if (!seen.has(buffer)) seen.set(buffer, buffer.slice(0));
    return seen.get(buffer);
  };
  // What is made is noted before what it holds is cloned, because that may lead back to it.
  const clone = (value, seen) => {
    if (typeof value === "symbol" || typeof value === "function") refuse("a " + typeof value);
    if (typeof value !== "object" || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const made = (copy) => {
      seen.set(value, copy);
      return copy;
    };
    for (const Box of BOXED) if (value instanceof Box) return made(Object(value.valueOf()));
    if (value instanceof Date) return made(new Date(value.getTime()));
    if (value instanceof RegExp) return made(new RegExp(value.source, value.flags));
    if (value instanceof ArrayBuffer) return bufferOf(value, seen);
    if (ArrayBuffer.isView(value)) {
      const Kind = value instanceof DataView ? DataView : globalThis[value[Symbol.toStringTag]];
      const length = value instanceof DataView ? value.byteLength : value.length;
      return made(new Kind(bufferOf(value.buffer, seen), value.byteOffset, length));
    }
    if (value instanceof Map) {
      const copy = made(new Map());
      for (const [key, held] of [...value]) copy.set(clone(key, seen), clone(held, seen));
      return copy;
    }
    if (value instanceof Set) {
      const copy = made(new Set());
      for (const held of [...value]) copy.add(clone(held, seen));
      return copy;
    }
    if (value instanceof Error) return errorOf(value, made, seen);
    if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet || value instanceof WeakRef) {
      refuse("a promise or a weak reference");
    }
    const copy = made(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of Object.keys(value)) {
      const held = clone(value[key], seen);
      Object.defineProperty(copy, key, { __proto__: null, value: held, writable: true, enumerable: true, configurable: true });
    }
    return copy;
  };
  const errorOf = (error, made, seen) => {
    const { name, message, stack } = error;
    const copy = made(new (Object.hasOwn(ERRORS, name) ? ERRORS[name] : Error)());
    const own = { message: message === undefined ? undefined : `${message}`, stack };
    if (Object.hasOwn(error, "cause")) own.cause = clone(error.cause, seen);
    for (const key of Object.keys(own)) {
      if (own[key] === undefined) continue;
      Object.defineProperty(copy, key, { __proto__: null, value: own[key], writable: true, enumerable: false, configurable: true });
    }
    return copy;
  };

  const structuredClone = (value, options) => {
    const seen = new Map();
    const transferred = [...(options?.transfer ?? [])];
    for (const buffer of transferred) {
      if (!(buffer instanceof ArrayBuffer) || buffer.detached || seen.has(buffer)) refuse("what is in transfer");
      seen.set(buffer, null);
    }
    // Copied like all else, and only then taken away: a clone that fails takes nothing.
    for (const buffer of transferred) seen.delete(buffer);
    const copy = clone(value, seen);
    for (const buffer of transferred) buffer.transfer();
    return copy;
  };
  return { structuredClone };
});
