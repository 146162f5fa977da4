// Does with a page what a person does, as told line by line on standard input.
//
// node visit.mjs CHROMIUM
// a line in: {"do": NAME, ...}, see DEEDS
// a line out: {"result": ...} or {"error": TEXT}

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const PATIENCE_MS = 20_000;
const LOOK_MS = 50;
const FLAGS = [
  "--no-sandbox", // for root, as in containers
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const browser = await chromium.launch({ executablePath: process.argv[2], args: FLAGS });
const seen = { said: [], asked: [] };
let page = null;

const DEEDS = {
  async open({ url, scheme, width, height, headers }) {
    await page?.close();
    page = await browser.newPage({
      colorScheme: scheme ?? "light", viewport: { width: width ?? 1280, height: height ?? 800 },
      extraHTTPHeaders: headers ?? {},
    });
    page.setDefaultTimeout(PATIENCE_MS);
    Object.assign(seen, { said: [], asked: [] });
    page.on("console", (message) => seen.said.push(`${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => seen.said.push(`error: ${error}`));
    page.on("request", (request) => seen.asked.push(request.url()));
    return (await page.goto(url)).status();
  },
  go: ({ hash }) => page.evaluate((wanted) => { location.hash = wanted; }, hash),
  // Waits until `selector` has an element with this text.
  see: async ({ selector, text }) => {
    const found = page.locator(selector).filter({ hasText: text ?? "" }).first();
    await found.waitFor({ state: "attached" });
    return found.textContent();
  },
  click: ({ selector }) => page.locator(selector).first().click(),
  fill: ({ selector, text }) => page.locator(selector).first().fill(text),
  choose: ({ selector, label }) => page.locator(selector).first().selectOption({ label }),
  // As a person chooses a file of these bytes.
  give: ({ selector, file, base64 }) => page.locator(selector).first().setInputFiles({
    name: file, mimeType: "application/octet-stream", buffer: Buffer.from(base64, "base64"),
  }),
  press: ({ key }) => page.keyboard.press(key),
  // Waits until an expression is true. Asked from here, since a page's policy may forbid eval.
  until: async ({ script }) => {
    const late = performance.now() + PATIENCE_MS;
    for (;;) {
      const found = await page.evaluate(script);
      if (found) {
        return found;
      }
      if (performance.now() > late) {
        throw new Error(`${script} was ${JSON.stringify(found)} for ${PATIENCE_MS} ms`);
      }
      await new Promise((go) => { setTimeout(go, LOOK_MS); });
    }
  },
  run: ({ script }) => page.evaluate(script),
  hide: async ({ hidden }) => page.evaluate((wanted) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => wanted });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden),
  shoot: ({ path, whole }) => page.screenshot({ path, fullPage: whole ?? true }),
  seen: () => seen,
};

console.log(JSON.stringify({ result: browser.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const deed = JSON.parse(line);
  const answer = await Promise.resolve(deed).then((given) => DEEDS[given.do](given)).then(
    (result) => ({ result: result ?? null }), (error) => ({ error: error.message }));
  console.log(JSON.stringify(answer));
}
await browser.close();
