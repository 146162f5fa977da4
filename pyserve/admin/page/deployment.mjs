// One deployment: its replicas, how long calls take, how long they wait, what the batches, steps
// and caches are.

import { h } from "./dom.mjs";
import { clock, duration, number, percent } from "./format.mjs";
import { read } from "./live.mjs";
import { MEASURES, facts, histogram, measures, spark, state, table } from "./parts.mjs";

export const title = ([application, name]) => `${application}/${name}`;

export async function refresh([application, name]) {
  return read(`/api/deployments/${encodeURIComponent(application)}/${encodeURIComponent(name)}.json`);
}

export function render({ history, details: found }) {
  if (found === undefined) {
    return h("p", { class: "none" }, "Loading.");
  }
  return [
    facts([
      ["state", [state(found.state), found.reason && ` ${found.reason}`]],
      ["since", clock(found.since)],
      ["replicas", `${found.running} of ${found.wanted}`],
      ["calls/s", [number(found.calls_per_second), " ", spark(history.of(found.target))]],
      ["errors", percent(found.error_share)],
      ["in flight", number(found.in_flight)],
      ["waiting", number(found.parked)],
      ["p50", duration(found.p50_s)],
      ["p99", duration(found.p99_s)],
      ["waited, p99", duration(found.parked_p99_s)],
    ]),
    found.services.length > 0 && h("p", { class: "hint" }, `Services: ${found.services.join(", ")}`),
    h("h2", { key: "replicas" }, "Replicas"),
    table("Replicas",
      ["replica", "state", ["in flight", true], ...MEASURES, ["mean", true], "process", "models",
        "outlier"],
      found.replicas.map((each) => ({
        key: each.id,
        class: each.odd ? "outlier" : null,
        cells: [each.id, state(each.state), bar(each.in_flight, found.replicas), ...measures(each),
          duration(each.mean_s), `${each.pid} on ${each.node}`,
          each.models.join(", ") + (each.models_left_out ? ` and ${each.models_left_out} more` : ""),
          each.odd && h("span", { class: "warning-text" }, each.odd)],
      })),
      "It has no replica."),
    found.ended.length > 0 && h("section", { key: "ended" },
      h("h2", null, "Replicas that have ended by themselves"),
      table("Ended replicas", ["replica", "ended", "how"],
        found.ended.toReversed().map((each) => ({
          key: each.replica, cells: [each.replica, clock(each.at), each.summary],
        }))),
      h("p", { class: "hint" }, "pyserve logs REPLICA has what one has written last.")),
    h("h2", { key: "times" }, "Times of the last seconds"),
    h("div", { class: "charts", key: "charts" },
      histogram("Answered calls, from the ingress and from handles", found.latency,
        [`p50 ${duration(found.p50_s)}`, `p99 ${duration(found.p99_s)}`]),
      histogram("Waits for a replica", found.parked_wait)),
    h("h2", { key: "prediction" }, "Foreseen ends"),
    prediction(found.prediction),
    batches(found.batches ?? []),
    steps(found.steps ?? []),
    cache(found.cache),
    counts(found),
  ];
}

function bar(value, replicas) {
  const most = Math.max(1, ...replicas.map((each) => each.in_flight));
  return [h("svg", { class: "bar", width: 40, height: 8, viewBox: "0 0 40 8", "aria-hidden": "true" },
    h("rect", { width: (40 * value / most).toFixed(1), height: 8 })), ` ${number(value)}`];
}

function prediction(found) {
  return found.calls === 0 ? h("p", { class: "none" }, "No call whose end was foreseen has ended.")
    : facts([
      ["calls", number(found.calls)],
      ["later than foreseen", percent(found.late_share)],
      ["early by, mean", duration(found.early_mean_s)],
      ["late by, mean", duration(found.late_mean_s)],
      ["late by, p99", duration(found.late_p99_s)],
    ]);
}

function batches(found) {
  return found.map((each) => h("section", { key: each.function },
    h("h2", null, `Batches of ${each.function}`),
    facts([
      ["batches/s", number(each.batches_per_second)],
      ["calls in one, mean", number(each.size_mean)],
      ["first call waited, mean", duration(each.wait_mean_s)],
      ["p99", duration(each.wait_p99_s)],
      ["ran, mean", duration(each.run_mean_s)],
      ["waiting now", number(each.waiting)],
    ]),
    h("div", { class: "charts" },
      histogram("Calls in a batch", each.sizes, [], number),
      h("div", { class: "reasons" }, table(`Why batches of ${each.function} left`,
        ["why it left", ["batches", true], ["share", true]],
        each.reasons.map((reason) => ({
          key: reason.reason,
          cells: [reason.reason, number(reason.batches), percent(reason.share)],
        })),
        "No batch left between the last two looks.")))));
}

function steps(found) {
  return found.map((each) => h("section", { key: `steps-${each.class}` },
    h("h2", null, `Steps of ${each.class}`),
    facts([
      ["running", number(each.running)],
      ["waiting", number(each.waiting)],
      ["parked", number(each.parked)],
      ["budget used", each.budget == null ? number(each.budget_used)
        : `${number(each.budget_used)} of ${number(each.budget)}`],
      ["cost of what waits", number(each.waiting_cost)],
      ["steps/s", number(each.steps_per_second)],
      ["a step, mean", duration(each.step_mean_s)],
      ["requests in one, mean", number(each.size_mean)],
      ["to the first value, p50", duration(each.first_value_p50_s)],
      ["p99", duration(each.first_value_p99_s)],
      ["from value to value, mean", duration(each.value_mean_s)],
      ["p99", duration(each.value_p99_s)],
      ["admitted/s", number(each.admissions_per_second)],
      ["preempted", number(each.preemptions)],
    ]),
    h("div", { class: "charts" }, histogram("Requests in a step", each.sizes, [], number))));
}

function cache(found) {
  return found && h("section", { key: "cache" },
    h("h2", null, "Cache entries that calls name"),
    facts([
      ["found", percent(found.found_share)],
      ["found/s", number(found.found_per_second)],
      ["missed/s", number(found.missed_per_second)],
      ["kept by all replicas", number(found.kept)],
    ]));
}

function counts(found) {
  const rows = [...Object.entries(found.counts), ...Object.entries(found.releases).map(
    ([name, count]) => [`parked, then sent: ${name}`, count])];
  return h("details", { key: "counts" },
    h("summary", null, "What the routers counted between the last two looks"),
    table("Counts", ["what", ["how often", true]],
      rows.map(([name, count]) => ({ key: name, cells: [name, number(count)] })), "Nothing."));
}

