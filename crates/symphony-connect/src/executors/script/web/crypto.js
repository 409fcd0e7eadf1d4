// crypto: digests, HMAC and random bytes, as the Web Cryptography API has them. The host calculates; bytes pass to it and
// back in base64.
export default (function (call) {
  "use strict";
  const DIGEST_BLOCK_BYTES = { "SHA-1": 64, "SHA-256": 64, "SHA-384": 128, "SHA-512": 128 };
  const USAGES = ["sign", "verify"];
  const RANDOM_BYTES_MAX = 65536;
  const { freeze, hasOwn } = Object;
  const { isView } = ArrayBuffer;
  const { fromBase64 } = Uint8Array;

  const fail = (name, message) => {
    throw new DOMException(message, name);
  };
  const bytesOf = (data, name) => {
    if (isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    throw new TypeError(name + " must be an ArrayBuffer or a view of one");
  };
  const base64 = (data, name) => bytesOf(data, name).toBase64();
  const bufferOf = (text) => fromBase64.call(Uint8Array, text).buffer;

  // An algorithm is a name or an object with one; names have no case.
  const nameOf = (algorithm) => {
    const name = typeof algorithm === "object" && algorithm !== null ? algorithm.name : algorithm;
    if (typeof name !== "string") throw new TypeError("algorithm must be a name or an object with a name");
    return name.toUpperCase();
  };
  const hashOf = (algorithm) => {
    const name = nameOf(algorithm);
    if (hasOwn(DIGEST_BLOCK_BYTES, name)) return name;
    return fail("NotSupportedError", "algorithm must be SHA-1, SHA-256, SHA-384 or SHA-512, not " + name);
  };
  const mustBeHmac = (algorithm) => {
    const name = nameOf(algorithm);
    if (name !== "HMAC") fail("NotSupportedError", "algorithm must be HMAC, not " + name);
  };
  const usagesOf = (usages) => {
    const wanted = [...usages];
    for (const usage of wanted) {
      if (!USAGES.includes(usage)) fail("SyntaxError", "usages must be sign and verify, not " + usage);
    }
    if (wanted.length === 0) fail("SyntaxError", "usages must not be empty");
    return USAGES.filter((usage) => wanted.includes(usage));
  };

  const own = {};
  let keyOf;
  class CryptoKey {
    #base64;
    constructor(maker, text, algorithm, extractable, usages) {
      if (maker !== own) throw new TypeError("a key is made with crypto.subtle.importKey or generateKey");
      this.#base64 = text;
      this.type = "secret";
      this.extractable = extractable;
      this.algorithm = freeze(algorithm);
      this.usages = freeze(usages);
      freeze(this);
    }
    static {
      keyOf = (key) => {
        if (typeof key === "object" && key !== null && #base64 in key) return key.#base64;
        throw new TypeError("key must be a CryptoKey");
      };
    }
  }
  const makeKey = (bytes, hash, extractable, usages) => {
    const algorithm = { name: "HMAC", hash: freeze({ name: hash }), length: bytes.length * 8 };
    return new CryptoKey(own, bytes.toBase64(), algorithm, Boolean(extractable), usages);
  };
  const usable = (key, usage) => {
    const text = keyOf(key);
    if (!key.usages.includes(usage)) fail("InvalidAccessError", "the key was not made to " + usage);
    return text;
  };
  const random = (bytes) => fromBase64.call(Uint8Array, call("web_random", "" + bytes));

  const subtle = {
    digest: async (algorithm, data) => {
      const hash = hashOf(algorithm);
      return bufferOf(call("web_digest", hash, base64(data, "data")));
    },
    importKey: async (format, data, algorithm, extractable, usages) => {
      if (format !== "raw") fail("NotSupportedError", "format must be raw");
      mustBeHmac(algorithm);
      const hash = hashOf(algorithm.hash);
      const wanted = usagesOf(usages);
      const bytes = bytesOf(data, "keyData");
      if (bytes.length === 0) fail("DataError", "keyData must not be empty");
      if (algorithm.length !== undefined && algorithm.length !== bytes.length * 8) {
        fail("DataError", "algorithm.length must be the length of keyData in bits");
      }
      return makeKey(bytes, hash, extractable, wanted);
    },
    generateKey: async (algorithm, extractable, usages) => {
      mustBeHmac(algorithm);
      const hash = hashOf(algorithm.hash);
      const wanted = usagesOf(usages);
      const { length = DIGEST_BLOCK_BYTES[hash] * 8 } = algorithm;
      if (!Number.isInteger(length) || length < 8 || length > 8192 || length % 8 !== 0) {
        fail("OperationError", "algorithm.length must be a multiple of 8 from 8 to 8192");
      }
      return makeKey(random(length / 8), hash, extractable, wanted);
    },
    exportKey: async (format, key) => {
      if (format !== "raw") fail("NotSupportedError", "format must be raw");
      const text = keyOf(key);
      if (!key.extractable) fail("InvalidAccessError", "the key was not made extractable");
      return bufferOf(text);
    },
    sign: async (algorithm, key, data) => {
      mustBeHmac(algorithm);
      const text = usable(key, "sign");
      return bufferOf(call("web_hmac_sign", key.algorithm.hash.name, text, base64(data, "data")));
    },
    verify: async (algorithm, key, signature, data) => {
      mustBeHmac(algorithm);
      const text = usable(key, "verify");
      const given = base64(signature, "signature");
      const { name } = key.algorithm.hash;
      return call("web_hmac_verify", name, text, base64(data, "data"), given) === "true";
    },
  };

  const getRandomValues = (array) => {
    if (!isView(array) || array instanceof DataView || /Float/.test(array[Symbol.toStringTag])) {
      fail("TypeMismatchError", "array must be a typed array of whole numbers");
    }
    const { byteLength } = array;
    if (byteLength > RANDOM_BYTES_MAX) {
      fail("QuotaExceededError", "array must have at most " + RANDOM_BYTES_MAX + " bytes");
    }
    bytesOf(array, "array").set(random(byteLength));
    return array;
  };
  const randomUUID = () => call("web_random_uuid");
  return { CryptoKey, crypto: freeze({ subtle: freeze(subtle), getRandomValues, randomUUID }) };
});
