// What is loaded where, and what it costs to have it there.

import { h } from "./dom.mjs";
import { duration, number, percent, size } from "./format.mjs";
import { read } from "./live.mjs";
import { deploymentLink, table } from "./parts.mjs";

export const title = "Models";

export async function refresh() {
  return read("/api/models.json");
}

// As the alert PyserveModelsThrash has it, of all loads instead of those of some minutes.
function isThrashing(cache) {
  return cache.reloads > 10 && cache.reloads > 0.3 * cache.loads;
}

export function render({ details: found }) {
  if (found === undefined) {
    return h("p", { class: "none" }, "Loading.");
  }
  return [
    table("Models",
      ["model", "deployment", "replica", ["bytes", true], ["hits", true], ["misses", true],
        ["loads", true], ["evictions", true], ["last load", true], "in use"],
      found.models.map((each) => ({
        key: `${each.replica} ${each.function} ${each.model}`,
        cells: [each.model, deploymentLink(each.target), each.replica, size(each.bytes || null),
          number(each.hits), number(each.misses), number(each.loads), number(each.evictions),
          duration(each.load_s), each.held ? "yes" : "no"],
      })),
      "No replica of this node has a model loaded; those of @pyserve.multiplexed say which they have."),
    found.models_left_out > 0
      && h("p", { class: "hint", key: "more" }, `And ${found.models_left_out} more.`),
    h("h2", { key: "caches" }, "By replica, since its start"),
    table("Replicas with models",
      ["replica", "deployment", "function", ["models", true], ["bytes", true], ["hits", true],
        ["misses", true], ["hit share", true], ["loads", true], ["failed", true],
        ["evictions", true], ["reloads", true], ["load, mean", true], ["p99", true],
        ["waiting", true]],
      found.caches.map((each) => ({
        key: `${each.replica} ${each.function}`,
        cells: [each.replica, deploymentLink(each.target), each.function,
          `${number(each.models)}${each.models_max === null ? "" : ` of ${number(each.models_max)}`}`,
          size(each.bytes || null), number(each.hits), number(each.misses),
          percent(each.hit_share), number(each.loads), number(each.loads_failed),
          number(each.evictions),
          h("span", { class: isThrashing(each) ? "warning-text" : null }, number(each.reloads)),
          duration(each.load_mean_s), duration(each.load_p99_s), number(each.waiting)],
      })),
      "None."),
    h("p", { class: "hint", key: "reloads" },
      "Reloads are loads that twice the room for models would have saved. They are marked where they "
      + "are more than ten, and more than three in ten loads."),
    found.others.length > 0 && [
      h("h2", { key: "others" }, "On other nodes"),
      table("Models of other nodes", ["model", "replica"],
        found.others.map((each) => ({
          key: `${each.replica} ${each.model}`, cells: [each.model, each.replica],
        }))),
    ],
  ];
}
