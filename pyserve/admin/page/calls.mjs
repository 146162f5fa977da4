// Calls that failed, the slowest, those that were asked for or sampled; and where the time of one went.

import { h } from "./dom.mjs";
import { clock, duration, number, percent, size } from "./format.mjs";
import { read } from "./live.mjs";
import { deploymentLink, facts, table } from "./parts.mjs";
import { waterfall } from "./waterfall.mjs";

const KINDS = [
  ["failed", "Failed"], ["slow", "Slowest"], ["asked", "Asked for"], ["sampled", "Sampled"],
];
const CODES = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
  "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
  "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"];

export const title = ([id]) => id === undefined || id === "" ? "Calls" : `Call ${id}`;

let kind = "failed";

export async function refresh([id]) {
  return id === undefined || id === "" ? { list: await read("/api/calls.json") }
    : { id, call: await read(`/api/calls/${encodeURIComponent(id)}`) };
}

// A call that has ended stays as it is; the list is asked for again with each look.
export const isSettled = ([id], details) => id !== undefined && id !== "" && details !== undefined;

export function render({ details, parameters: [id], redraw, problem }) {
  if (details === undefined) {
    return problem === "" ? h("p", { class: "none" }, "Loading.") : null;
  }
  return id === undefined || id === "" ? list(details.list, redraw) : one(details.call);
}

function list(found, redraw) {
  const choose = (chosen) => () => {
    kind = chosen;
    redraw();
  };
  const { calls, kept } = found[kind];
  return [
    h("div", { class: "kinds", role: "group", "aria-label": "Which calls" },
      KINDS.map(([name, words]) => h("button", {
        key: name, type: "button", "aria-pressed": String(name === kind), onclick: choose(name),
      }, `${words}, ${number(found[name].kept)}`))),
    table("Calls",
      ["request", "began", "what", "deployment", "replica", "ended", ["took", true],
        ["waited for a replica", true], ["attempts", true], ["request", true], ["answer", true]],
      calls.map((call, place) => ({
        key: `${call.request_id} ${call.started_at} ${place}`,
        cells: [
          h("a", { href: `#/calls/${encodeURIComponent(call.request_id)}` }, call.request_id),
          clock(call.started_at), `${call.method} (${call.door})`,
          call.target === "" ? "–" : deploymentLink(call.target), call.replica || "–", ended(call),
          duration(call.duration_s), duration(call.parked_s), number(call.attempts_made),
          size(call.request_bytes), size(call.response_bytes),
        ],
      })),
      kept === 0 && kind === "asked" ? "None: send the header x-pyserve-explain: 1 with a call."
        : "None."),
    kept > calls.length && h("p", { class: "hint" }, `${number(kept - calls.length)} more are kept; `
      + "each is found by its id."),
  ];
}

function ended(call) {
  const words = call.http_status !== 0 ? `HTTP ${call.http_status}`
    : CODES[call.code] ?? `code ${call.code}`;
  const isBad = call.http_status >= 500 || (call.http_status === 0 && call.code !== 0);
  const why = call.refused === "" ? call.reason : `refused: ${call.refused}`;
  return h("span", { class: isBad ? "bad-text" : null }, why === "" ? words : `${words}, ${why}`);
}

function one(call) {
  return [
    call.cause && h("p", { class: "cause" }, `${duration(call.cause.seconds)} of ${
      duration(call.duration_s)} (${percent(call.cause.share)}): ${call.cause.text}.`),
    facts([
      ["what", `${call.method} (${call.door})`],
      ["deployment", call.target === "" ? "–" : deploymentLink(call.target)],
      ["began", clock(call.started_at)],
      ["ended", ended(call)],
      ["answered by the", call.answered_by],
      call.model_id !== "" && ["model", call.model_id],
      ["kept because", { asked: "asked for", slow: "slow" }[call.kept_for] ?? call.kept_for],
    ]),
    h("h2", null, "Where the time went"),
    table("Where the time went", ["what", ["time", true], ["share", true]],
      call.parts.map((part) => ({
        key: `${part.kind} ${part.text}`,
        cells: [part.text, duration(part.seconds), percent(part.share)],
      })), "It took no time."),
    h("h2", null, "In the order of time"),
    waterfall(call),
    h("h2", null, "Attempts"),
    table("Attempts", ["replica", "why", "ended", ["began after", true], ["took", true]],
      call.attempts.map((attempt, place) => ({
        key: place,
        cells: [attempt.replica, attempt.why, attempt.outcome, duration(attempt.start_s),
          duration(attempt.duration_s)],
      })), "No replica was tried."),
    Object.entries(call.silent).map(([name, why]) =>
      h("p", { class: "notice", key: name }, `${name} did not say what the call waited for: ${why}`)),
    call.routing && h("details", null, h("summary", null, "What the router saw"),
      h("pre", { tabindex: "0", "aria-label": "What the router saw" },
        JSON.stringify(call.routing, null, 2))),
  ];
}
