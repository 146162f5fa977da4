// Who calls whom: deployments from left to right, with rate, errors and p99 on the edges.

import { h } from "./dom.mjs";
import { duration, number, percent } from "./format.mjs";
import { BOX, layout } from "./layout.mjs";
import { MEASURES, deploymentHref, deploymentLink, level, measures, table } from "./parts.mjs";

export const title = "Graph";

export function render({ overview }) {
  const { edges } = overview;
  const known = new Map(overview.deployments.map((each) => [each.target, each]));
  return [
    h("p", { class: "hint" }, "Calls of the last seconds; a line is as thick as they are many."),
    drawing(layout([...known.keys()], edges), known),
    h("h2", null, "Edges"),
    table("Edges", ["from", "to", ["in flight", true], ["waiting", true], ...MEASURES],
      edges.map((edge) => ({
        key: `${edge.from} ${edge.to}`,
        cells: [nameOf(edge.from), deploymentLink(edge.to), number(edge.in_flight),
          number(edge.parked), ...measures(edge)],
      })),
      "No call has been made yet."),
  ];
}

function nameOf(caller) {
  return caller.includes("/") ? deploymentLink(caller) : caller;
}

function drawing(found, known) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Graph" },
    h("svg", {
      class: "graph", width: found.width, height: found.height, role: "group",
      viewBox: `0 0 ${found.width} ${found.height}`,
      "aria-label": "Deployments and the calls between them; the table below has the same.",
    }, found.lines.map(line), found.boxes.map((place) => box(place, known.get(place.name)))));
}

function line({ edge, path, end }) {
  const thick = 1 + Math.min(5, Math.log10(1 + edge.calls_per_second) * 1.6);
  const isBad = edge.error_share > 0;
  return h("g", { key: `${edge.from} ${edge.to}`, class: isBad ? "edge bad" : "edge",
    "aria-hidden": "true" },
  h("path", { d: path, "stroke-width": thick.toFixed(1) }),
  h("text", { x: end.x - 6, y: end.y - 6 }, `${number(edge.calls_per_second)}/s, p99 ${
    duration(edge.p99_s)}`),
  isBad && h("text", { x: end.x - 6, y: end.y + 14, class: "errors" },
    `${percent(edge.error_share)} errors`));
}

function box(place, deployment) {
  const below = deployment === undefined ? "" : `${deployment.running}/${deployment.wanted} replicas, ${
    number(deployment.in_flight)} in flight`;
  const middle = place.y + place.height / 2;
  const inside = [
    h("rect", { x: place.x, y: place.y, width: BOX.width, height: place.height, rx: 4 }),
    h("text", { x: place.x + 10, y: middle + (below ? -3 : 4), class: "name" },
      shortened(place.name)),
    below && h("text", { x: place.x + 10, y: middle + 13 }, below),
  ];
  return deployment === undefined ? h("g", { key: place.name, class: "node" }, inside)
    : h("a", { key: place.name, class: `node ${level(deployment.state)}`,
      href: deploymentHref(place.name),
      "aria-label": `${place.name}, ${deployment.state}, ${below}` }, inside);
}

function shortened(name) {
  return name.length > 24 ? `${name.slice(0, 10)}…${name.slice(-12)}` : name;
}
