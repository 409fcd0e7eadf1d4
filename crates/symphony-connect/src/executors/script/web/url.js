// URL and URLSearchParams, as the URL Standard has them. The host parses and writes.
export default (function (call) {
  "use strict";
  const { parse, stringify } = JSON;
  const text = (value) => `${value}`.toWellFormed();

  let changed;
  let refill;
  class URLSearchParams {
    #pairs = [];
    #url = null;
    constructor(init = "") {
      if (typeof init !== "object" || init === null) {
        this.#pairs = parse(call("web_form_parse", text(init).replace(/^\?/, "")));
      } else if (typeof init[Symbol.iterator] === "function") {
        for (const pair of init) {
          const both = [...pair];
          if (both.length !== 2) throw new TypeError("each pair must be a name and a value");
          this.#pairs.push([text(both[0]), text(both[1])]);
        }
      } else {
        for (const name of Reflect.ownKeys(init)) {
          if (Object.getOwnPropertyDescriptor(init, name)?.enumerable) this.#put(text(name), text(init[name]));
        }
      }
    }
    static {
      refill = (params, url, search) => {
        params.#url = url;
        params.#pairs = parse(call("web_form_parse", search.replace(/^\?/, "")));
        return params;
      };
    }
    #put(name, value) {
      const found = this.#pairs.find((pair) => pair[0] === name);
      if (found === undefined) this.#pairs.push([name, value]);
      else found[1] = value;
    }
    #update() {
      if (this.#url !== null) changed(this.#url, this.toString());
    }
    get size() {
      return this.#pairs.length;
    }
    append(name, value) {
      this.#pairs.push([text(name), text(value)]);
      this.#update();
    }
    delete(name, value) {
      const [gone, exactly] = [text(name), value === undefined ? undefined : text(value)];
      const stays = (pair) => pair[0] !== gone || (exactly !== undefined && pair[1] !== exactly);
      this.#pairs = this.#pairs.filter(stays);
      this.#update();
    }
    get(name) {
      const wanted = text(name);
      return this.#pairs.find((pair) => pair[0] === wanted)?.[1] ?? null;
    }
    getAll(name) {
      const wanted = text(name);
      return this.#pairs.filter((pair) => pair[0] === wanted).map((pair) => pair[1]);
    }
    has(name, value) {
      const [wanted, exactly] = [text(name), value === undefined ? undefined : text(value)];
      return this.#pairs.some((pair) => pair[0] === wanted && (exactly === undefined || pair[1] === exactly));
    }
    set(name, value) {
      const [wanted, made] = [text(name), text(value)];
      const first = this.#pairs.findIndex((pair) => pair[0] === wanted);
      this.#pairs = this.#pairs.filter((pair, place) => pair[0] !== wanted || place === first);
      this.#put(wanted, made);
      this.#update();
    }
    sort() {
      this.#pairs.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
      this.#update();
    }
    forEach(each, self) {
      for (const [name, value] of this) each.call(self, value, name, this);
    }
    *entries() {
      for (let place = 0; place < this.#pairs.length; place++) yield [...this.#pairs[place]];
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
    toString() {
      return call("web_form_write", stringify(this.#pairs));
    }
    get [Symbol.toStringTag]() {
      return "URLSearchParams";
    }
  }

  // In the order in which the host answers.
  const PARTS = ["href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash", "origin"];
  class URL {
    #parts;
    #params;
    constructor(url, base) {
      const has = base === undefined ? "" : "yes";
      this.#parts = parse(call("web_url_parse", text(url), has === "" ? "" : text(base), has));
    }
    static {
      changed = (url, search) => {
        url.#parts = parse(call("web_url_set", url.#parts[0], "search", search));
      };
      PARTS.forEach((name, place) => {
        const get = function () {
          return this.#parts[place];
        };
        const set = function (value) {
          this.#parts = parse(call("web_url_set", this.#parts[0], name, text(value)));
          if (this.#params !== undefined) refill(this.#params, this, this.search);
        };
        const setter = name === "origin" ? undefined : set;
        const accessor = { __proto__: null, get, set: setter, enumerable: true, configurable: true };
        Object.defineProperty(this.prototype, name, accessor);
      });
    }
    static parse(url, base) {
      try {
        return new this(url, base);
      } catch {
        return null;
      }
    }
    static canParse(url, base) {
      return URL.parse(url, base) !== null;
    }
    get searchParams() {
      this.#params ??= refill(new URLSearchParams(), this, this.search);
      return this.#params;
    }
    toString() {
      return this.href;
    }
    toJSON() {
      return this.href;
    }
    get [Symbol.toStringTag]() {
      return "URL";
    }
  }
  return { URL, URLSearchParams };
});
