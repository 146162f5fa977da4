// How many replicas there shall be, why, and since when.

import { h } from "./dom.mjs";
import { clock } from "./format.mjs";
import { deploymentLink, spark, table } from "./parts.mjs";

export const title = "Autoscaling";

export function render({ overview, history }) {
  const scaled = overview.deployments.filter((each) => each.scaling !== null);
  return [
    table("Decisions",
      ["deployment", ["running", true], ["target", true], ["wanted but for a delay", true], "bounds",
        "decided", "because", "replicas, last minutes"],
      scaled.map((each) => ({
        key: each.target,
        cells: [deploymentLink(each.target), each.running,
          each.scaling.target + (each.scaling.is_advisory ? " (advice)" : ""), each.scaling.pending,
          each.scaling.max_replicas === 0 ? "set from outside"
            : `${each.scaling.min_replicas} to ${each.scaling.max_replicas}`,
          clock(each.scaling.since), each.scaling.reason, spark(history.of(each.target, "running"))],
      })),
      "No deployment has an autoscaling_config: each has as many replicas as it was deployed with."),
    h("h2", null, "Lately"),
    table("Changes",
      ["decided", "deployment", ["from", true], ["to", true], "because"],
      scaled.flatMap((each) => each.scaling.decisions.map((decision) => ({ each, ...decision })))
        .toSorted((one, other) => other.at - one.at)
        .map(({ each, at, before, after, reason }) => ({
          key: `${each.target} ${at}`,
          cells: [clock(at), deploymentLink(each.target), before,
            after + (each.scaling.is_advisory ? " (advice)" : ""), reason],
        })),
      "No number of replicas has changed since the controller began."),
  ];
}
