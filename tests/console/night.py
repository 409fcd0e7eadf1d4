"""The on-call night in a real browser: find the parked payment, read its life, ask to resolve it, a second person approves.

Drives Chromium by WebDriver, with the standard library alone. Arguments: a JSON document with `url`, `dana`, `kim` (tokens),
`sought` (the parked payment's instruction), `chromedriver`, `chromium`, `folder` (for the pictures) and `paths` (more pages).
"""

import base64
import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
WAIT_SECONDS = 20
TAB = "\ue004"

# What a person who sees little, or has no mouse, would stumble over; [] if nothing.
BARRIERS = """
const found = [];
const told = (node) => node.tagName.toLowerCase() + (node.name ? `[name=${node.name}]` : '') + (node.className ? `.${node.className}` : '');
for (const node of document.querySelectorAll('[tabindex]'))
  if (node.tabIndex > 0) found.push(`${told(node)} has a positive tabindex`);
for (const node of document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a[href]')) {
  const label = node.labels && [...node.labels].map((one) => one.textContent.trim()).join(' ');
  const name = node.getAttribute('aria-label') || label || (node.matches('button, a') && node.textContent.trim());
  if (!name) found.push(`${told(node)} has no name`);
}
const parts = (color) => color.match(/[\\d.]+/g).map(Number);
const over = (top, below) => [0, 1, 2].map((i) => top[i] * (top[3] ?? 1) + below[i] * (1 - (top[3] ?? 1)));
const ground = (node) => {
  const layers = [];
  for (let one = node; one; one = one.parentElement) layers.push(parts(getComputedStyle(one).backgroundColor));
  const base = parts(getComputedStyle(document.documentElement).colorScheme === 'dark' ? 'rgb(0, 0, 0)' : 'rgb(255, 255, 255)');
  return layers.reverse().reduce((below, top) => over(top, below), base);
};
const light = (color) => {
  const [r, g, b] = color.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const seen = new Set();
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const node = texts.currentNode.parentElement;
  const style = getComputedStyle(node);
  if (!texts.currentNode.textContent.trim() || !node.getClientRects().length || style.visibility !== 'visible') continue;
  const below = ground(node);
  const [a, b] = [light(over(parts(style.color), below)), light(below)];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const line = `${told(node)}: ${style.color} on ${below.map(Math.round)} is ${contrast.toFixed(2)} to 1`;
  if (contrast < 4.5 && !node.disabled && !seen.has(line)) seen.add(line);
}
return [...found, ...seen];
"""
# Which of what can be used was not reached by the tabulator; the focus marks what it was on.
UNREACHED = """
const usable = 'input:not([type=hidden]):not([hidden]):not([disabled]), select, textarea, button:not([disabled]), a[href]';
const radio = (node) => node.type === 'radio' && [...document.getElementsByName(node.name)].some((one) => one.dataset.reached);
return [...document.querySelectorAll(usable)].filter((node) => node.getClientRects().length && !node.dataset.reached && !radio(node))
  .map((node) => node.outerHTML.slice(0, 120));
"""


class Driver:
    """One chromedriver, for every browser of the night."""

    def __init__(self, program):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [program, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{port}"
        until(lambda: self.call("GET", "/status")["ready"], "chromedriver is there")

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise WebDriverError(json.load(error)["value"]["message"]) from None

    def stop(self):
        self.process.terminate()
        self.process.wait()


class WebDriverError(Exception):
    pass


def until(holds, claim):
    """Poll until it holds."""
    end, last = time.monotonic() + WAIT_SECONDS, None
    while time.monotonic() < end:
        try:
            if holds():
                return
        except (WebDriverError, urllib.error.URLError, ConnectionError) as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"never: {claim}; {last}")


class Browser:
    """A browser of one person: cookies of its own."""

    def __init__(self, driver, chromium, url):
        options = {"binary": chromium, "args": [
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
            "--disable-background-networking", "--disable-component-update", "--no-first-run", "--window-size=1280,900"]}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self.driver, self.url = driver, url
        self.id = driver.call("POST", "/session", {"capabilities": wanted})["sessionId"]

    def call(self, method, path, body=None):
        return self.driver.call(method, f"/session/{self.id}{path}", body)

    def open(self, path):
        self.call("POST", "/url", {"url": self.url + path})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self):
        return self.run("return document.querySelector('main').innerText")

    def find(self, css):
        return self.call("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.call("POST", f"/element/{self.find(css)}/click", {})

    def click_link(self, words):
        element = self.call("POST", "/element", {"using": "link text", "value": words})[ELEMENT]
        self.call("POST", f"/element/{element}/click", {})

    def type(self, css, text):
        self.call("POST", f"/element/{self.find(css)}/value", {"text": text})

    def press(self, key):
        """A key, wherever the focus is."""
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def assert_keyboard_reaches_all(self, name):
        """By the tabulator from the top of the page to its end."""
        self.run("document.activeElement.blur(); window.scrollTo(0, 0)")
        stops = self.run("return document.querySelectorAll('input, select, textarea, button, a, [tabindex]').length")
        for _ in range(stops + 2):
            self.press(TAB)
            self.run("document.activeElement.dataset.reached = '1'")
        unreached = self.run(UNREACHED)
        assert not unreached, f"{name}: the keyboard does not reach {unreached}"

    def until_text(self, words):
        until(lambda: words in self.text(), f"{words!r} is on the page")

    def cdp(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, dark, narrow):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])
        width, height = (390, 844) if narrow else (1280, 900)
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=narrow)

    def picture(self, folder, name, variants):
        for dark, narrow in variants:
            self.look(dark, narrow)
            # A page wider than a phone would be scrolled sideways.
            sideways = self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert sideways <= 0, f"{name} is {sideways} pixels too wide (narrow: {narrow})"
            barriers = self.run(BARRIERS)
            assert not barriers, f"{name} (dark: {dark}, narrow: {narrow}): {barriers}"
            shot = base64.b64decode(self.call("GET", "/screenshot"))
            words = [name, "dark" if dark else "light", "narrow" if narrow else "wide"]
            (folder / ("-".join(words) + ".png")).write_bytes(shot)
        self.look(False, False)

    def assert_no_complaint(self, expected=()):
        """The policy forbids inline code: whatever broke it, or failed, stands in the browser's own log."""
        entries = self.call("POST", "/se/log", {"type": "browser"})
        bad = [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
        bad = [message for message in bad if not any(words in message for words in expected)]
        assert not bad, bad

    def sign_in(self, token):
        self.open("/console")
        self.type("#token", token + "\ue007")
        until(lambda: "Overview" in self.text(), "signed in")

    def close(self):
        self.call("DELETE", "")


EVERY = [(False, False), (True, False), (False, True), (True, True)]


def act(dana, kim, page, words):
    """From the page of what is acted on: its button, a reason, the preview, and a second person where one must approve."""
    dana.open(page)
    dana.click_link(words)
    dana.until_text("Reason")
    dana.type("[name=reason]", f"tonight: {words}")
    dana.click("button[value=preview]")
    dana.until_text("What would change")
    if dana.run("return document.querySelector('button[value=do]') !== null"):
        dana.click("button[value=do]")
        until(lambda: "Done:" in dana.run("return document.body.innerText"), f"{words} is done")
        return
    dana.click("button[value=ask]")
    dana.until_text("waits for a second person")
    kim.open(dana.run("return location.pathname"))
    kim.type("[name=reason]", "yes")
    kim.click("form[action$=approve] button.primary")
    kim.until_text("approved, and done")


def many(dana, kim):
    """Two failed payments at once: ticked, previewed, asked for in one request, approved."""
    dana.open("/console/waiting/payments?state=FAILED&code=INSUFFICIENT_FUNDS")
    dana.click("[data-tick-all]")
    ticked = dana.run("return document.querySelectorAll('[name=item]:checked').length")
    assert ticked == 2, f"{ticked} are ticked"
    dana.run("document.querySelector('[name=act]').value = 'close_payment_dead_letter'")
    dana.type("[name=reason]", "tonight: both are settled by mail")
    dana.click("button[value=preview]")
    dana.until_text("What would change")
    if dana.run("return document.querySelector('button[value=do]') !== null"):
        dana.click("button[value=do]")
        until(lambda: "Done with 2" in dana.run("return document.body.innerText"), "both are closed")
        return
    dana.click("button[value=ask]")
    dana.until_text("waits for a second person")
    kim.open(dana.run("return location.pathname"))
    kim.type("[name=reason]", "yes, both")
    kim.click("form[action$=approve] button.primary")
    kim.until_text("approved, and done")


def night(driver, task):
    folder = pathlib.Path(task["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    dana = Browser(driver, task["chromium"], task["url"])
    kim = Browser(driver, task["chromium"], task["url"])
    dana.open("/console")
    dana.picture(folder, "sign-in", [(False, False)])
    dana.sign_in(task["dana"])
    until(lambda: dana.run("return document.querySelectorAll('.chart svg path').length") > 12, "charts are drawn")

    # Find it: "/" is the search.
    dana.press("/")
    until(lambda: dana.run("return document.activeElement.id") == "search", "/ goes to the search")
    dana.type("#search", task["sought"] + "\ue007")
    dana.until_text("Its life")
    life = dana.text()
    for words in [task["sought"], "parked", "outcome unknown", "nobody knows whether the money moved", "EUR"]:
        assert words in life, f"{words!r} in {life}"
    dana.picture(folder, "payment-parked", EVERY)
    payment = dana.run("return location.pathname")

    # Ask to resolve it.
    dana.click_link("Resolve")
    dana.click("input[value=DISPATCHED]")
    dana.type("[name=p_rail_reference]", "SEPA-77120")
    dana.type("[name=reason]", "the bank's statement has it, booked at 02:14")
    dana.click("button[value=preview]")
    dana.until_text("What would change")
    dana.picture(folder, "act-preview", EVERY)
    dana.assert_keyboard_reaches_all("act-preview")
    dana.click("button[value=ask]")
    dana.until_text("waits for a second person")
    request = dana.run("return location.pathname")
    # One's own request: refused, and said why.
    dana.type("[name=reason]", "I would like to")
    dana.click("form[action$=approve] button.primary")
    dana.until_text("a second person approves it")

    # Somebody else finds it on the overview and approves it.
    kim.sign_in(task["kim"])
    kim.until_text("Request 1")
    kim.click_link("Request 1")
    kim.until_text("Decide")
    assert "the bank's statement has it" in kim.text()
    kim.picture(folder, "approval", EVERY)
    kim.type("[name=reason]", "I see it in the statement too")
    kim.click("form[action$=approve] button.primary")
    kim.until_text("approved, and done")

    # The ledger shows both.
    dana.open(payment)
    dana.until_text("Its life")
    life = dana.text()
    for words in ["dispatched", "SEPA-77120", "by dana", "approved by kim", "I see it in the statement too"]:
        assert words in life, f"{words!r} in {life}"
    dana.picture(folder, "payment-resolved", EVERY)
    for name, path in task["paths"].items():
        dana.open(path)
        variants = EVERY if task["all"] or name == "waiting" else [(False, False), (True, True)]
        dana.picture(folder, name, variants)
        if name in ("waiting", "destinations"):
            dana.assert_keyboard_reaches_all(name)
    many(dana, kim)
    dana.open("/console")
    until(lambda: dana.run("return document.querySelectorAll('.chart svg path').length") > 12, "charts are drawn")
    dana.until_text("live, as of")
    dana.picture(folder, "overview", EVERY)
    for page, words in task["acts"]:
        act(dana, kim, page, words)
    dana.assert_no_complaint(expected=[f"{request}/approve"])
    kim.assert_no_complaint()
    dana.close()
    kim.close()
    print(f"the night took {time.monotonic() - started:.1f} s in the browser")


def main():
    task = json.loads(sys.argv[1])
    driver = Driver(task["chromedriver"])
    try:
        night(driver, task)
    finally:
        driver.stop()


main()
