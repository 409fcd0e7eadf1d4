// Headers, as the Fetch Standard has them. As JSON it is an object whose "set-cookie" is a list: what an answer takes.
export default (function () {
  "use strict";
  const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  const nameOf = (value) => {
    const name = `${value}`;
    if (!NAME.test(name)) throw new TypeError("a header's name must be letters, digits and !#$%&'*+-.^_`|~");
    return name.toLowerCase();
  };
  const valueOf = (given) => {
    const value = `${given}`.replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
    if (/[\0\n\r]|[^\0-\xff]/.test(value)) {
      throw new TypeError("a header's value must be one line of characters up to U+00FF");
    }
    return value;
  };

  class Headers {
    #pairs = [];
    constructor(init) {
      if (init === undefined) return;
      if (typeof init !== "object" || init === null) throw new TypeError("init must be an object or pairs");
      if (typeof init[Symbol.iterator] === "function") {
        for (const pair of init) {
          const both = [...pair];
          if (both.length !== 2) throw new TypeError("each pair must be a name and a value");
          this.append(both[0], both[1]);
        }
      } else {
        for (const name of Reflect.ownKeys(init)) {
          if (Object.getOwnPropertyDescriptor(init, name)?.enumerable) this.append(name, init[name]);
        }
      }
    }
    append(name, value) {
      this.#pairs.push([nameOf(name), valueOf(value)]);
    }
    delete(name) {
      const gone = nameOf(name);
      this.#pairs = this.#pairs.filter((pair) => pair[0] !== gone);
    }
    #all(name) {
      return this.#pairs.filter((pair) => pair[0] === name).map((pair) => pair[1]);
    }
    get(name) {
      const values = this.#all(nameOf(name));
      return values.length === 0 ? null : values.join(", ");
    }
    getSetCookie() {
      return this.#all("set-cookie");
    }
    has(name) {
      return this.#all(nameOf(name)).length > 0;
    }
    set(name, value) {
      const [wanted, made] = [nameOf(name), valueOf(value)];
      const first = this.#pairs.findIndex((pair) => pair[0] === wanted);
      if (first === -1) this.#pairs.push([wanted, made]);
      else {
        this.#pairs = this.#pairs.filter((pair, place) => pair[0] !== wanted || place === first);
        this.#pairs.find((pair) => pair[0] === wanted)[1] = made;
      }
    }
    forEach(each, self) {
      for (const [name, value] of this) each.call(self, value, name, this);
    }
    *entries() {
      const names = [...new Set(this.#pairs.map((pair) => pair[0]))].sort();
      for (const name of names) {
        const values = this.#all(name);
        if (name === "set-cookie") yield* values.map((value) => [name, value]);
        else yield [name, values.join(", ")];
      }
    }
    *keys() {
      for (const [name] of this.entries()) yield name;
    }
    *values() {
      for (const [, value] of this.entries()) yield value;
    }
    [Symbol.iterator]() {
      return this.entries();
    }
    toJSON() {
      const made = {};
      for (const [name, value] of this) made[name] = name === "set-cookie" ? this.getSetCookie() : value;
      return made;
    }
    get [Symbol.toStringTag]() {
      return "Headers";
    }
  }
  // Those of an answer: also its own fields by their names, with all values in one text.
  const received = (pairs) => {
    const headers = new Headers(pairs);
    for (const [name] of headers) {
      if (name in headers) continue;
      Object.defineProperty(headers, name, { __proto__: null, value: headers.get(name), enumerable: true });
    }
    return Object.freeze(headers);
  };
  return { Headers, received };
});
