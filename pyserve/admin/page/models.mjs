// What is loaded where.

import { h } from "./dom.mjs";
import { number } from "./format.mjs";
import { deploymentLink, state, table } from "./parts.mjs";

export const title = "Models";

export function render({ overview }) {
  const holders = overview.deployments.flatMap((deployment) => deployment.replicas
    .filter((replica) => replica.models.length > 0)
    .map((replica) => ({ ...replica, target: deployment.target })));
  const copies = new Map();
  for (const holder of holders) {
    for (const model of holder.models) {
      const key = `${holder.target} ${model}`;
      const known = copies.get(key) ?? { model, target: holder.target, replicas: [] };
      known.replicas.push(holder.id);
      copies.set(key, known);
    }
  }
  return [
    table("Models", ["model", "deployment", ["copies", true], "replicas"],
      [...copies.values()].toSorted((one, other) => other.replicas.length - one.replicas.length)
        .map((each) => ({
          key: `${each.target} ${each.model}`,
          cells: [each.model, deploymentLink(each.target), number(each.replicas.length),
            each.replicas.join(", ")],
        })),
      "No replica has said which models it has; those of @pyserve.multiplexed do."),
    h("h2", null, "By replica"),
    table("Replicas with models", ["replica", "deployment", "state", ["models", true], "which"],
      holders.map((each) => ({
        key: each.id,
        cells: [each.id, deploymentLink(each.target), state(each.state),
          number(each.models.length + each.models_left_out),
          each.models.join(", ") + (each.models_left_out ? ", …" : "")],
      })),
      "None."),
  ];
}
