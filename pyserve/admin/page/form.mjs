// Calls a method with what is filled in. Nothing of it is kept, here or at the server.

import { h } from "./dom.mjs";
import { duration } from "./format.mjs";
import { Values, inputs, message } from "./fields.mjs";
import { read } from "./live.mjs";

export const title = "Try a method";

const state = {
  chosen: "", values: new Values(), asJson: false, json: "", authorization: "", timeout: "30",
  isCalling: false, answer: null, problem: "",
};

export async function refresh() {
  return (await read("/api/methods.json")).methods;
}

// Descriptors change with deploys only.
export const isSettled = (_, details) => details !== undefined;

export function render({ details: methods, redraw }) {
  if (methods === undefined) {
    return h("p", { class: "none" }, "Loading.");
  }
  const usable = methods.filter((each) => each.can_be_tried);
  if (usable.length === 0) {
    return h("p", { class: "none" }, "No deployment has a method with a .proto that takes one message.");
  }
  const method = usable.find((each) => keyOf(each) === state.chosen) ?? usable[0];
  state.chosen = keyOf(method);
  return h("form", { class: "try", onsubmit: (event) => submit(event, method, redraw) },
    h("div", { class: "field", key: "method" },
      h("label", { for: "method" }, "Method"),
      h("select", { id: "method", onchange: (event) => choose(event.target.value, redraw) },
        usable.map((each) => h("option", { key: keyOf(each), value: keyOf(each),
          selected: keyOf(each) === state.chosen },
        `${each.application}: ${each.service}/${each.method}`)))),
    h("p", { class: "hint", key: "types" }, `${method.request} → ${
      method.answers === "stream" ? "a stream of " : ""}${method.response}`),
    state.asJson ? jsonInput() : h("div", { key: `fields ${state.chosen}` },
      method.fields.length === 0 ? h("p", { class: "hint" }, "Its request has no fields.")
        : inputs(method.fields, state.values, redraw)),
    options(),
    h("div", { class: "buttons", key: "buttons" },
      h("button", { type: "submit", class: "main", "aria-disabled": state.isCalling ? "true" : null },
        state.isCalling ? "Calling…" : "Call"),
      h("button", { type: "button", onclick: () => toggle(method, redraw) },
        state.asJson ? "Fill in fields" : "Write JSON")),
    h("div", { key: "answer", role: "status", class: "answer" },
      state.problem && h("p", { class: "bad-text" }, state.problem),
      state.answer && shown(state.answer)));
}

function keyOf(method) {
  return `${method.application} ${method.path}`;
}

function choose(key, redraw) {
  Object.assign(state, {
    chosen: key, values: new Values(), asJson: false, json: "", answer: null, problem: "",
  });
  redraw();
}

function toggle(method, redraw) {
  try {
    if (!state.asJson) {
      state.json = JSON.stringify(message(method.fields, state.values), null, 2);
    }
    Object.assign(state, { asJson: !state.asJson, problem: "" });
  } catch (error) {
    state.problem = error.message;
  }
  redraw();
  const area = document.getElementById("json");
  if (area !== null) {
    area.value = state.json;
    area.focus();
  }
}

function jsonInput() {
  return h("div", { class: "field", key: "json" },
    h("label", { for: "json" }, "The request as JSON"),
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

async function submit(event, method, redraw) {
  event.preventDefault();
  if (state.isCalling) {
    return;
  }
  try {
    const text = state.asJson ? state.json : JSON.stringify(message(method.fields, state.values));
    Object.assign(state, { isCalling: true, answer: null, problem: "" });
    redraw();
    state.answer = await read("/api/call", {
      method: "POST",
      headers: { "content-type": "application/json", "x-pyserve-page": "1" },
      body: JSON.stringify({
        path: method.path, application: method.application, message: text,
        authorization: state.authorization, timeout_s: Number(state.timeout),
      }),
    });
  } catch (error) {
    state.problem = error.message;
  }
  state.isCalling = false;
  redraw();
}

function shown(answer) {
  const id = answer.headers["x-request-id"];
  const why = answer.headers["x-pyserve-explain"];
  return [
    h("p", { class: answer.status < 400 ? "fine-text" : "bad-text" },
      `${answer.status < 400 ? "Answered" : "Failed"} with HTTP ${answer.status} in ${
        duration(answer.took_s)}`,
      id && [", request ", h("a", { href: `#/calls/${encodeURIComponent(id)}` }, id)], "."),
    h("pre", { tabindex: "0", "aria-label": "Answer" }, pretty(answer.body),
      answer.is_cut ? "\n… and more, which is cut off here" : ""),
    why && h("details", null, h("summary", null, "Why it went where it went"),
      h("pre", { tabindex: "0", "aria-label": "Explanation" }, pretty(why))),
  ];
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
