// Calls a method with what is filled in. Nothing of it is kept, here or at the server.

import { answer } from "./answer.mjs";
import { Call, bodyValue, messageOf, parameterPath, requestOf } from "./calling.mjs";
import { h } from "./dom.mjs";
import { Values, inputs, message, single } from "./fields.mjs";
import { read } from "./live.mjs";

export const title = "Try a method";

const VERBS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
// For paths that no document names.
const ANY = {
  kind: "http", verb: "", path: "", group: "Others", summary: "Any request", about: "",
  parameters: [], body: { type: "application/json", kind: "raw" },
};
const state = {
  chosen: "", values: new Values(), asJson: false, json: "", authorization: "", timeout: "30",
  call: null, problem: "", deployed: "",
};

export async function refresh() {
  return read("/api/methods.json");
}

/** What can be called changes with deploys only. */
export function isSettled(_, details, overview) {
  const deployed = overview.deployments
    .map((each) => `${each.target} ${each.state} ${each.since}`).toSorted().join();
  const isNews = deployed !== state.deployed;
  state.deployed = deployed;
  return details !== undefined && !isNews;
}

export function render({ details, redraw }) {
  if (details === undefined) {
    return h("p", { class: "none" }, "Loading.");
  }
  const forms = [...details.methods, ANY];
  const form = forms.find((each) => keyOf(each) === state.chosen) ?? forms[0];
  state.chosen = keyOf(form);
  return [
    !details.can_be_tried && h("p", { class: "notice", key: "off" },
      "Calls from this page are off in this mesh; PYSERVE_TRY_METHODS=1 turns them on."),
    h("p", { key: "document", class: "hint" }, "For programs, which show the token if there is one: ",
      h("a", { href: "/-/openapi.json" }, "OpenAPI")),
    h("form", { key: "form", class: "try", onsubmit: (event) => submit(event, form, redraw) },
      choice(forms, redraw),
      about(form),
      h("div", { key: `fields ${state.chosen} ${state.asJson}` }, filling(form, redraw)),
      options(),
      buttons(form, redraw, details.can_be_tried)),
    h("div", { key: "answer", class: "answer" },
      state.problem && h("p", { class: "bad-text", role: "alert" }, state.problem),
      state.call && answer(state.call)),
    missing(details.undescribed),
  ];
}

function keyOf(form) {
  return `${form.application ?? ""} ${form.verb ?? ""} ${form.path}`;
}

function nameOf(form) {
  if (form.kind === "rpc") {
    return `${form.application}: ${form.service}/${form.method}`;
  }
  return form === ANY ? form.summary : `${form.verb} ${form.path}`;
}

function groupOf(form) {
  return form.kind === "rpc" ? `${form.application}, gRPC` : form.group || "HTTP";
}

function choice(forms, redraw) {
  const groups = new Map();
  forms.forEach((form) => groups.set(groupOf(form), [...groups.get(groupOf(form)) ?? [], form]));
  return h("div", { class: "field", key: "method" },
    h("label", { for: "method" }, "Method"),
    h("select", { id: "method", onchange: (event) => choose(event.target.value, redraw) },
      [...groups].map(([group, found]) => h("optgroup", { key: group, label: group },
        found.map((form) => h("option", {
          key: keyOf(form), value: keyOf(form), selected: keyOf(form) === state.chosen,
        }, nameOf(form)))))));
}

function about(form) {
  const said = form.kind !== "rpc" ? [form.summary, form.about].filter(Boolean).join(". ")
    : `${form.takes === "stream" ? "a stream of " : ""}${form.request} → ${
      form.answers === "stream" ? "a stream of " : ""}${form.response}`;
  return h("p", { class: "hint", key: "types" }, said);
}

function missing(undescribed) {
  return undescribed.length > 0 && h("ul", { key: "missing", class: "hint" },
    undescribed.map((each) => h("li", { key: each.prefix },
      `Not described: ${each.prefix} of ${each.application}, ${each.reason}.`)));
}

function filling(form, redraw) {
  if (form.kind === "rpc") {
    return state.asJson ? jsonInput("The request as JSON") : form.fields.length === 0
      ? h("p", { class: "hint" }, "Its request has no fields.")
      : inputs(form.fields, state.values, redraw);
  }
  const parameters = form.parameters.map((each) => ({
    ...each, name: parameterPath(each), hint: [each.in, each.hint].filter(Boolean).join("; "),
  }));
  return [form === ANY && anyRequest(), inputs(parameters, state.values, redraw), body(form, redraw)];
}

function anyRequest() {
  return [
    single({ kind: "enum", values: VERBS, type: "" }, "verb", "HTTP method", state.values),
    single({ kind: "text", type: "with its query" }, "path", "Path", state.values),
  ];
}

function body(form, redraw) {
  if (form.body === null) {
    return null;
  }
  if (form.body.kind === "raw") {
    return [
      single({ kind: "json", type: "" }, "body", "Body", state.values),
      single({ kind: "file", type: "in its place" }, "file", "A file as the body", state.values),
      single({ kind: "text", type: "", hint: form.body.type }, "type", "Content type", state.values),
    ];
  }
  if (form.body.kind === "json" && state.asJson) {
    return jsonInput("The body as JSON");
  }
  const { field } = form.body;
  if (field.kind === "message") {
    return h("fieldset", null, h("legend", null, "Body", h("span", { class: "type" }, ` ${field.type}`)),
      inputs(field.fields, state.values, redraw, "body."));
  }
  return inputs([{ ...field, name: "body", label: "Body" }], state.values, redraw);
}

function jsonInput(label) {
  return h("div", { class: "field", key: "json" },
    h("label", { for: "json" }, label),
    h("textarea", { id: "json", rows: 10, spellcheck: "false",
      oninput: (event) => { state.json = event.target.value; } }));
}

function options() {
  return h("details", { key: "options" },
    h("summary", null, "Time limit, authorization"),
    h("div", { class: "field" },
      h("label", { for: "timeout" }, "Seconds until the call is given up"),
      h("input", { id: "timeout", inputmode: "decimal", autocomplete: "off", placeholder: "30",
        oninput: (event) => { state.timeout = event.target.value || "30"; } })),
    h("div", { class: "field" },
      h("label", { for: "authorization" }, "authorization, for access rules"),
      h("input", { id: "authorization", type: "password", autocomplete: "off",
        placeholder: "Bearer …",
        oninput: (event) => { state.authorization = event.target.value; } })));
}

/** Buttons stay where they are, so that focus stays too; those that do nothing now say so. */
function buttons(form, redraw, canBeTried) {
  const { call } = state;
  const isRunning = call !== null && call.isRunning;
  const canSend = isRunning && call.takesMore;
  const name = form.takes === "stream" ? (isRunning ? "Send" : "Begin") : isRunning ? "Calling…" : "Call";
  const hasJson = form.kind === "rpc" || form.body?.kind === "json";
  const off = (isOff) => isOff ? "true" : null;
  return h("div", { class: "buttons", key: "buttons" },
    h("button", { key: "call", type: "submit", class: "main",
      "aria-disabled": off(!canBeTried || (isRunning && !canSend)) }, name),
    form.takes === "stream" && h("button", { key: "end", type: "button", "aria-disabled": off(!canSend),
      onclick: () => canSend && attempt(() => call.finish(), redraw) }, "No more messages"),
    h("button", { key: "cancel", type: "button", "aria-disabled": off(!isRunning),
      onclick: () => isRunning && call.cancel() }, "Cancel"),
    hasJson && h("button", { key: "json", type: "button", onclick: () => toggle(form, redraw) },
      state.asJson ? "Fill in fields" : "Write JSON"));
}

function choose(key, redraw) {
  state.call?.cancel();
  Object.assign(state, {
    chosen: key, values: new Values(), asJson: false, json: "", call: null, problem: "",
  });
  redraw();
}

async function toggle(form, redraw) {
  await attempt(() => {
    if (!state.asJson) {
      const value = form.kind === "rpc" ? message(form.fields, state.values)
        : bodyValue(form.body, state.values);
      state.json = JSON.stringify(value, null, 2);
    }
    state.asJson = !state.asJson;
  }, redraw);
  const area = document.getElementById("json");
  if (area !== null) {
    area.value = state.json;
    area.focus();
  }
}

async function attempt(deed, redraw) {
  state.problem = "";
  try {
    await deed();
  } catch (error) {
    state.problem = error.message;
  }
  redraw();
}

function submit(event, form, redraw) {
  event.preventDefault();
  if (event.submitter?.getAttribute("aria-disabled") === "true") {
    return;
  }
  attempt(async () => {
    if (state.call?.isRunning) {
      await state.call.send(messageOf(form, state));
    } else {
      state.call = new Call(await requestOf(form, state), redraw);
    }
  }, redraw);
}
