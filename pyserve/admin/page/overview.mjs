// What runs, how it is, and what it does now.

import { h } from "./dom.mjs";
import { clock, number } from "./format.mjs";
import { MEASURES, deploymentLink, facts, level, measures, spark, state, table } from "./parts.mjs";

export const title = "Overview";
const EVENTS = 12;

export function render({ overview, history }) {
  const replicas = overview.deployments.flatMap((deployment) => deployment.replicas);
  const outliers = overview.deployments.flatMap((deployment) =>
    deployment.replicas.filter((replica) => replica.odd)
      .map((replica) => ({ ...replica, target: deployment.target })));
  return [
    facts([
      ["applications", overview.applications.length],
      ["deployments", overview.deployments.length],
      ["replicas running", `${overview.deployments.reduce((sum, each) => sum + each.running, 0)} of ${
        overview.deployments.reduce((sum, each) => sum + each.wanted, 0)}`],
      ["calls/s", number(total(overview, "calls_per_second"))],
      ["errors/s", number(total(overview, "errors_per_second"))],
      ["in flight", number(total(overview, "in_flight"))],
      ["waiting", number(total(overview, "parked"))],
      replicas.length > 0 && ["outliers", outliers.length === 0 ? "none"
        : h("span", { class: "warning-text" }, outliers.length)],
    ]),
    overview.notices.map((notice) => h("p", { class: "notice", key: notice }, notice)),
    outliers.map((replica) => h("p", { class: "notice", key: replica.id },
      deploymentLink(replica.target), ` ${replica.id}: ${replica.odd}`)),
    h("h2", { key: "deployments" }, "Deployments"),
    table("Deployments",
      ["deployment", "state", ["in flight", true], ["waiting", true], ...MEASURES, "last minutes",
        "replicas"],
      overview.deployments.map((each) => ({
        key: each.target,
        cells: [
          deploymentLink(each.target),
          [state(each.state), level(each.state) === "fine" ? null : ` ${each.reason}`],
          number(each.in_flight),
          number(each.parked),
          ...measures(each),
          spark(history.of(each.target)),
          replicasOf(each),
        ],
      })),
      "No application is deployed."),
    h("h2", { key: "ingresses" }, "Ingresses"),
    table("Ingresses",
      ["node", "state", "listens at", ["connections", true], ["in flight", true], "since", "process"],
      overview.ingresses.map((each) => ({
        key: `${each.node}-${each.pid}`,
        cells: [each.node, [state(each.state), each.message && ` ${each.message}`],
          each.addresses.join(", "), number(each.connections), number(each.in_flight),
          clock(each.since), each.pid],
      })),
      "This mesh has no ingress."),
    h("h2", { key: "events" }, "Lately"),
    events(overview.events.slice(0, EVENTS)),
  ];
}

export function events(found) {
  return found.length === 0 ? h("p", { class: "none" }, "Nothing has happened yet.")
    : h("ol", { class: "events" }, found.map((event) =>
      h("li", { key: `${event.kind} ${event.where} ${event.text}`, class: event.level },
        h("time", { datetime: new Date(event.at * 1000).toISOString() }, clock(event.at)),
        h("span", { class: "where" }, event.where), h("span", null, event.text))));
}

function total(overview, name) {
  return overview.deployments.reduce((sum, each) => sum + each[name], 0);
}

/** A mark for each replica: its shape and colour are its state, its name is in the title. */
function replicasOf(deployment) {
  const marks = deployment.replicas.map((replica) => h("span", {
    key: replica.id,
    class: `replica ${replica.odd ? "warning" : level(replica.state)}`,
    title: `${replica.id}: ${replica.odd || replica.state}`,
  }));
  return [
    h("span", { class: "replicas", "aria-hidden": "true" }, marks),
    ` ${deployment.running}/${deployment.wanted}`,
  ];
}
