// What several pages show: tables, states, small charts.

import { h } from "./dom.mjs";
import { duration, number, percent } from "./format.mjs";

const FINE = new Set(["HEALTHY", "RUNNING"]);
const BAD = new Set(["UNHEALTHY", "DEPLOY_FAILED", "SILENT"]);

export function level(state) {
  return FINE.has(state) ? "fine" : BAD.has(state) ? "bad" : "warning";
}

/** A state in words, with a mark whose shape says it too. */
export function state(word, text) {
  return h("span", { class: `state ${level(word)}` }, text ?? word);
}

/**
 * A table: `columns` are [name, isNumber] or just a name, `rows` are {key, cells, class}.
 * The first cell of a row is its head.
 */
export function table(caption, columns, rows, empty) {
  const named = columns.map((column) => [column].flat());
  if (rows.length === 0) {
    return h("p", { class: "none" }, empty ?? "None.");
  }
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null,
      h("caption", { class: "spoken" }, caption),
      h("thead", null, h("tr", null, named.map(([name, isNumber]) =>
        h("th", { scope: "col", class: isNumber ? "number" : null }, name)))),
      h("tbody", null, rows.map((row) =>
        h("tr", { key: row.key, class: row.class }, row.cells.map((cell, place) =>
          h(place === 0 ? "th" : "td",
            { scope: place === 0 ? "row" : null, class: named[place][1] ? "number" : null },
            cell)))))));
}

export const MEASURES = [["calls/s", true], ["errors", true], ["p50", true], ["p99", true]];

/** The cells of MEASURES. */
export function measures(found) {
  return [
    number(found.calls_per_second),
    h("span", { class: found.error_share > 0 ? "bad-text" : null }, percent(found.error_share)),
    duration(found.p50_s),
    duration(found.p99_s),
  ];
}

/** Pairs of a name and a value, in a row. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter((pair) => pair).map(([name, value]) =>
    h("div", { key: name }, h("dt", null, name), h("dd", null, value))));
}

/** The last values as a line; it repeats what the numbers say, so nothing is read out. */
export function spark(values, width = 96, heightPx = 20) {
  const known = values.filter((value) => value !== null);
  const most = Math.max(...known, 1e-9);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, place) => value === null ? null
    : `${(place * step).toFixed(1)},${(heightPx - 1 - (heightPx - 2) * value / most).toFixed(1)}`);
  return h("svg", {
    class: "spark", width, height: heightPx, viewBox: `0 0 ${width} ${heightPx}`,
    "aria-hidden": "true", focusable: "false",
  }, h("polyline", { points: points.filter((point) => point !== null).join(" ") }));
}

/** A histogram, of times if nothing else is said, from its first bucket that holds something to its last. */
export function histogram(title, found, marks = [], bound = duration) {
  const total = found.counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) {
    return h("p", { class: "none" }, `${title}: none between the last two looks.`);
  }
  const first = Math.max(0, found.counts.findIndex((count) => count > 0) - 1);
  const last = found.counts.findLastIndex((count) => count > 0);
  const shown = found.counts.slice(first, last + 1);
  const most = Math.max(...shown);
  const wide = 46;
  const high = 72;
  const label = (place) => place < found.buckets.length ? bound(found.buckets[place])
    : `> ${bound(found.buckets.at(-1))}`;
  const said = shown.map((count, place) => `up to ${label(first + place)}: ${count}`).join(", ");
  return h("figure", null,
    h("figcaption", null, title, marks.map((mark) => h("span", { class: "mark" }, mark))),
    h("svg", {
      class: "histogram", role: "img", "aria-label": `${title}. ${said}`,
      width: shown.length * wide, height: high + 30,
      viewBox: `0 0 ${shown.length * wide} ${high + 30}`,
    }, shown.map((count, place) => {
      const tall = Math.max(count > 0 ? 1 : 0, high * count / most);
      const middle = place * wide + wide / 2;
      return h("g", { key: first + place },
        h("rect", { x: place * wide + 3, y: 12 + high - tall, width: wide - 6, height: tall }),
        h("text", { x: middle, y: 9 + high - tall, class: "count" },
          count > 0 ? percent(count / total) : ""),
        h("text", { x: middle, y: high + 25, class: "bound" }, label(first + place)));
    })));
}

/** The hash of a deployment's page. */
export function deploymentHref(target) {
  return `#/deployments/${target.split("/").map(encodeURIComponent).join("/")}`;
}

export function deploymentLink(target) {
  return h("a", { href: deploymentHref(target) }, target);
}
