// What a call has brought so far.

import { h } from "./dom.mjs";
import { duration } from "./format.mjs";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const saved = { of: null, url: "" };

export function answer(call) {
  return [
    h("div", { key: "state", role: "status" }, summary(call)),
    (call.entries.length > 0 || call.takesMore) && log(call),
    call.text !== "" && h("pre", { key: "text", tabindex: "0", "aria-label": "Answer" },
      call.isRunning ? call.text : pretty(call.text)),
    call.pieces.length > 0 && !call.isRunning && bytes(call),
    call.isCut && h("p", { key: "cut", class: "hint" },
      "There was more; the call was ended here, since this is as much as the page shows."),
    why(call),
  ];
}

function summary(call) {
  const headers = call.head?.headers;
  // An application may have set the first itself; then the other one has the id of the call.
  const id = headers?.["x-pyserve-request-id"] ?? headers?.["x-request-id"];
  const isFine = call.problem === "" && call.error === null && (call.head?.status ?? 200) < 400;
  const said = call.isRunning ? running(call) : ended(call, isFine);
  return h("p", { class: call.isRunning ? "hint" : isFine ? "fine-text" : "bad-text" }, said,
    id && [" Request ", h("a", { href: `#/calls/${encodeURIComponent(id)}` }, id), "."]);
}

function running(call) {
  return call.head === null ? "Waiting for an answer." : "The answer comes.";
}

function ended(call, isFine) {
  const took = call.tookS === null ? "" : ` in ${duration(call.tookS)}`;
  if (call.problem !== "") {
    return call.problem;
  }
  if (call.error !== null) {
    return `Failed with ${call.error.code}${took}: ${call.error.message ?? ""}.`;
  }
  const said = call.head.headers["x-pyserve-error"];
  return `${isFine ? "Answered" : "Failed"} with HTTP ${call.head.status}${took}${
    said && !isFine ? `: ${said}` : ""}.`;
}

/** Messages as they come; a screen reader says each. */
function log(call) {
  return h("ol", { key: "log", class: "log", role: "log", "aria-label": "Messages", tabindex: "0" },
    call.leftOut > 0 && h("li", { key: "left", class: "hint" }, `${call.leftOut} earlier ones.`),
    call.entries.map((entry, place) => h("li", { key: place + call.leftOut },
      h("span", { class: "type" }, `${entry.way === "in" ? "came" : "sent"} at ${
        duration(entry.atS)}`),
      h("code", null, entry.text))));
}

function bytes(call) {
  const type = call.head.headers["content-type"]?.split(";")[0] ?? "application/octet-stream";
  if (saved.of !== call) {
    URL.revokeObjectURL(saved.url);
    Object.assign(saved, { of: call, url: URL.createObjectURL(new Blob(call.pieces, { type })) });
  }
  const size = call.pieces.reduce((sum, each) => sum + each.length, 0);
  return h("figure", { key: "bytes" },
    h("figcaption", null, `${size} bytes of ${type}. `,
      h("a", { href: saved.url, download: "answer" }, "Save them")),
    IMAGES.has(type) && h("img", { src: saved.url, alt: "The answer" }));
}

function why(call) {
  const said = call.explanation;
  return said !== "" && h("details", { key: "why" }, h("summary", null, "Why it went where it went"),
    h("pre", { tabindex: "0", "aria-label": "Explanation" }, pretty(said)));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
