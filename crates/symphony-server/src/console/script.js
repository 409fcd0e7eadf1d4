// What a page can do without is not here: this draws the overview's charts, keeps its figures fresh and hears the keyboard.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 240;
  const HEIGHT = 48;

  // "/" goes to the search, Escape leaves it.
  const search = document.getElementById("search");
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && search) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && typing === search) {
      search.blur();
    }
  });

  // On a phone the pages' names are wider than the screen: the one that is open shall be seen.
  const here = document.querySelector(".pages [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;

  // A form that was sent is not sent again by an impatient second click.
  for (const form of document.querySelectorAll("form[method=post]")) {
    form.addEventListener("submit", () => {
      setTimeout(() => form.querySelectorAll("button").forEach((button) => { button.disabled = true; }));
    });
  }
  // One tick for all of a list.
  for (const all of document.querySelectorAll("[data-tick-all]")) {
    all.hidden = false;
    all.addEventListener("change", () => {
      all.closest("table").querySelectorAll("[name=item]").forEach((one) => { one.checked = all.checked; });
    });
  }

  addEventListener("pageshow", () => {
    document.querySelectorAll("form button").forEach((button) => { button.disabled = false; });
  });

  let drawing = 0;
  const live = document.querySelector("[data-live]");
  if (live) watch(live);

  function watch(told) {
    let samples = [];
    // How much is kept: the stream says it first.
    let kept = { seconds: 1800, every_seconds: 5, samples_max: 500 };
    const say = (on, text) => {
      told.classList.toggle("on", on);
      told.classList.toggle("off", !on);
      told.textContent = text;
    };
    const timed = (sample) => ({ ...sample, at: new Date(sample.at) });
    const open = () => {
      const source = new EventSource(told.dataset.live);
      // After a reconnection the stream begins with what it remembers.
      source.addEventListener("history", (message) => {
        const { samples: before, ...bounds } = JSON.parse(message.data);
        samples = before.map(timed);
        kept = bounds;
      });
      source.onmessage = (message) => {
        const sample = timed(JSON.parse(message.data));
        remember(samples, sample, kept);
        say(true, `live, as of ${clock(sample.at)} UTC`);
        clearTimeout(drawing);
        drawing = setTimeout(() => draw(samples, kept), 20);
      };
      source.addEventListener("away", () => say(false, "the database does not answer"));
      source.onerror = () => {
        say(false, "not live: connecting again");
        // The browser tries again by itself, unless it was answered something else than a stream.
        if (source.readyState === EventSource.CLOSED) askWhy();
      };
    };
    // Only 401 says that the session is over: a proxy's 502 passes.
    const askWhy = async () => {
      const status = await fetch(told.dataset.live, { method: "HEAD" }).then((answer) => answer.status, () => 0);
      if (status === 401) say(false, "not live: sign in again");
      else setTimeout(open, 3000);
    };
    open();
  }

  // As the server does.
  function remember(samples, sample, kept) {
    const last = samples[samples.length - 1];
    if (last && sample.at <= last.at) return;
    const before = samples[samples.length - 2];
    if (before && sample.at - before.at < kept.every_seconds * 1000) samples.pop();
    samples.push(sample);
    while (samples.length > kept.samples_max || sample.at - samples[0].at > kept.seconds * 1000) samples.shift();
  }

  function clock(at) {
    return at.toISOString().slice(11, 19);
  }

  function draw(samples, kept) {
    for (const card of document.querySelectorAll("[data-lane]")) {
      const series = samples.map((sample) => {
        const lane = sample.lanes.find((one) => one.lane === card.dataset.lane);
        return lane && { at: sample.at, ...lane };
      }).filter(Boolean);
      const latest = series[series.length - 1];
      if (!latest) continue;
      for (const place of card.querySelectorAll("[data-figure]")) {
        const key = place.dataset.figure;
        place.textContent = key.endsWith("_seconds") ? age(latest[key]) : figure(latest[key]);
        place.classList.toggle("bad", key === "dlq_count" && latest[key] > 0);
      }
      for (const chart of card.querySelectorAll("[data-chart]")) {
        const key = chart.dataset.chart;
        if (key === "outcomes") drawOutcomes(chart, series, kept);
        else drawOne(chart, series, key, kept);
        chart.querySelector("[data-from]").textContent = clock(series[0].at);
        chart.querySelector("[data-to]").textContent = clock(latest.at);
      }
    }
  }

  function drawOne(chart, series, key, kept) {
    const known = series.filter((one) => typeof one[key] === "number");
    const most = Math.max(...known.map((one) => one[key]), 1);
    const svg = canvas(chart);
    for (const part of unbroken(known, kept)) {
      const line = points(part, (one) => one[key], most, series);
      const [from, to] = [part[0], part[part.length - 1]].map((one) => place(one.at, series).toFixed(1));
      svg.append(path("area", `M${from},${HEIGHT} L${line} L${to},${HEIGHT} Z`), path("line", `M${line}`));
    }
    const latest = series[series.length - 1][key];
    tell(chart, typeof latest === "number" ? figure(latest) : "–");
  }

  function drawOutcomes(chart, series, kept) {
    const svg = canvas(chart);
    const kinds = ["dispatched", "retryable", "failed"];
    const rate = (one, kind) => one[`${kind}_per_minute`] / 60;
    const most = Math.max(...series.flatMap((one) => kinds.map((kind) => rate(one, kind))), 1);
    for (const kind of kinds) {
      for (const part of unbroken(series, kept)) {
        svg.append(path(`line ${kind}`, `M${points(part, (one) => rate(one, kind), most, series)}`));
      }
    }
    const now = kinds.map((kind) => rate(series[series.length - 1], kind).toFixed(1));
    tell(chart, `${now[0]} ok · ${now[1]} retry · ${now[2]} failed`);
  }

  // While the database was away nothing is known: no line is drawn over that time.
  function unbroken(series, kept) {
    const parts = [];
    series.forEach((one, index) => {
      const before = series[index - 1];
      if (before && one.at - before.at <= kept.every_seconds * 4000) parts[parts.length - 1].push(one);
      else parts.push([one]);
    });
    return parts;
  }

  // Where a moment stands on the axis, which begins with the oldest sample and ends with the newest.
  function place(at, series) {
    const [first, last] = [series[0].at, series[series.length - 1].at];
    return last > first ? ((at - first) / (last - first)) * WIDTH : WIDTH;
  }

  function points(part, value, most, series) {
    const drawn = part.map((one) => {
      const y = HEIGHT - 3 - (value(one) / most) * (HEIGHT - 8);
      return [place(one.at, series).toFixed(1), y.toFixed(1)];
    });
    // One sample alone is a line as well.
    if (drawn.length === 1) drawn.unshift([Math.max(drawn[0][0] - 2, 0).toFixed(1), drawn[0][1]]);
    return drawn.map((point) => point.join(",")).join(" L");
  }

  function canvas(chart) {
    let svg = chart.querySelector("svg");
    if (!svg) {
      svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      chart.append(svg);
    }
    svg.replaceChildren();
    return svg;
  }

  function path(kind, d) {
    const drawn = document.createElementNS(SVG, "path");
    drawn.setAttribute("class", kind);
    drawn.setAttribute("d", d);
    return drawn;
  }

  function tell(chart, text) {
    chart.querySelector("[data-latest]").textContent = text;
  }

  // As the pages write them.
  function figure(number) {
    return String(number ?? 0).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  }

  function age(seconds) {
    if (seconds < 120) return `${seconds} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }
})();
