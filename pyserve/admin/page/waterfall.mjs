// The spans of a call below each other, each where its time was.

import { h } from "./dom.mjs";
import { duration } from "./format.mjs";

const WIDE = 1180;
const WORDS = 560;
const ROW = 22;
const LEAST = 2;
const STEP = 14;

export function waterfall(call) {
  const whole = Math.max(call.duration_s, 1e-9);
  const left = (seconds) => WORDS + (WIDE - WORDS - 70) * Math.max(0, Math.min(1, seconds / whole));
  const high = ROW * call.spans.length + 18;
  const said = call.spans.map((span) =>
    `${span.text}: ${duration(span.duration_s)} after ${duration(span.start_s)}`).join("; ");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Waterfall" },
    h("svg", { class: "waterfall", role: "img", "aria-label": `In the order of time: ${said}`,
      width: WIDE, height: high, viewBox: `0 0 ${WIDE} ${high}` },
    [0, 0.25, 0.5, 0.75, 1].map((share) => h("g", { key: `tick ${share}` },
      h("line", { x1: left(share * whole), x2: left(share * whole), y1: 14, y2: high }),
      h("text", { x: left(share * whole), y: 10 }, duration(share * whole)))),
    call.spans.map((span, place) => row(span, place, left)),
    call.spans_left_out > 0 && h("text", { x: WORDS, y: high }, `and ${call.spans_left_out} more`)));
}

function row(span, place, left) {
  const top = 18 + place * ROW;
  const from = left(span.start_s);
  const wide = Math.max(LEAST, left(span.start_s + span.duration_s) - from);
  return h("g", { key: place, class: `row ${span.kind}` },
    h("title", null, span.text),
    h("text", { x: span.depth * STEP, y: top + 13 }, shortened(span.text, span.depth)),
    h("rect", { x: from, y: top + 3, width: wide, height: ROW - 9 }),
    h("text", { x: from + wide + 5, y: top + 13, class: "time" }, duration(span.duration_s)));
}

function shortened(text, depth) {
  const most = 92 - 2 * depth;
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
