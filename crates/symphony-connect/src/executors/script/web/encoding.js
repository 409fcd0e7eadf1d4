// TextEncoder and TextDecoder, as the Encoding Standard has them. The host decodes; bytes pass to it and back in base64.
export default (function (call) {
  "use strict";
  const { isView } = ArrayBuffer;
  const { fromBase64 } = Uint8Array;
  const encoded = (text) => fromBase64.call(Uint8Array, call("web_encode", text.toWellFormed()));

  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(input = "") {
      return encoded(`${input}`);
    }
    encodeInto(source, destination) {
      const text = `${source}`.toWellFormed();
      if (!(destination instanceof Uint8Array)) throw new TypeError("destination must be a Uint8Array");
      let read = 0;
      let written = 0;
      for (const character of text) {
        const point = character.codePointAt(0);
        const bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
        if (written + bytes > destination.length) break;
        written += bytes;
        read += character.length;
      }
      destination.set(encoded(text.slice(0, read)));
      return { read, written };
    }
    get [Symbol.toStringTag]() {
      return "TextEncoder";
    }
  }

  // Decoders between two pieces of a text are the host's, by number.
  let streams = 0;
  class TextDecoder {
    #encoding;
    #fatal;
    #ignoreBOM;
    #stream = "";
    constructor(label = "utf-8", options = {}) {
      this.#encoding = call("web_encoding", `${label}`.toWellFormed());
      if (this.#encoding === "") throw new RangeError("label must name an encoding, and " + label + " does not");
      this.#fatal = Boolean(options?.fatal);
      this.#ignoreBOM = Boolean(options?.ignoreBOM);
    }
    get encoding() {
      return this.#encoding;
    }
    get fatal() {
      return this.#fatal;
    }
    get ignoreBOM() {
      return this.#ignoreBOM;
    }
    decode(input = new Uint8Array(), options = {}) {
      let bytes;
      if (isView(input)) bytes = new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
      else if (input instanceof ArrayBuffer) bytes = new Uint8Array(input);
      else throw new TypeError("input must be an ArrayBuffer or a view of one");
      const goesOn = Boolean(options?.stream);
      if (goesOn && this.#stream === "") this.#stream = "" + ++streams;
      const flags = (this.#fatal ? "f" : "") + (this.#ignoreBOM ? "b" : "") + (goesOn ? "s" : "");
      const stream = this.#stream;
      if (!goesOn) this.#stream = "";
      return call("web_decode", this.#encoding, bytes.toBase64(), flags, stream);
    }
    get [Symbol.toStringTag]() {
      return "TextDecoder";
    }
  }
  return { TextEncoder, TextDecoder };
});
