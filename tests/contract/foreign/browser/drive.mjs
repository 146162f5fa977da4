// Runs functions of pages in headless Chromium, as told line by line on standard input.
//
// node drive.mjs CHROMIUM
// a line in: {"page": URL, "function": NAME, "arguments": [...]}
// a line out: {"result": ...} or {"error": TEXT}

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const PATIENCE_MS = 30_000;
const FLAGS = [
  "--no-sandbox", // for root, as in containers
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  // Nothing that Chromium would like to know from its maker.
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

const browser = await chromium.launch({ executablePath: process.argv[2], args: FLAGS });
const pages = new Map();

async function open(url) {
  if (!pages.has(url)) {
    const page = await browser.newPage();
    page.on("console", (message) => console.error(`${url}: ${message.text()}`));
    page.on("pageerror", (error) => console.error(`${url}: ${error}`));
    const answer = await page.goto(url, { timeout: PATIENCE_MS });
    if (!answer.ok()) {
      throw new Error(`${url}: ${answer.status()}`);
    }
    pages.set(url, page);
  }
  return pages.get(url);
}

async function run({ page: url, function: name, arguments: values }) {
  const page = await open(url);
  const result = page.evaluate(
    ({ name, values }) => window[name](...values), { name, values });
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${name}: no end in ${PATIENCE_MS} ms`)), PATIENCE_MS);
  });
  return Promise.race([result, late]).finally(() => clearTimeout(timer));
}

console.log(JSON.stringify({ result: browser.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await run(JSON.parse(line)).then(
    (result) => ({ result }), (error) => ({ error: error.message }));
  console.log(JSON.stringify(answer));
}
await browser.close();
