// A form for a message, from the fields that a descriptor has, and the message from the form.

import { h } from "./dom.mjs";

const BASE64_CHUNK = 0x8000;

/** What somebody has filled in: texts and files by path, rows of lists, and choices of oneofs. */
export class Values {
  texts = new Map();
  files = new Map();
  rows = new Map();
  choices = new Map();

  text(path) {
    return this.texts.get(path) ?? "";
  }

  count(path) {
    return this.rows.get(path) ?? 0;
  }

  /** Whether a field is there: of those that exclude each other the chosen one alone. */
  has(field, prefix) {
    return field.oneof === undefined || this.choices.get(prefix + field.oneof) === field.name;
  }
}

/** The inputs of `fields`; `changed` is called when there are more or fewer of them. */
export function inputs(fields, values, changed, prefix = "") {
  const seen = new Set();
  return fields.map((field) => {
    if (field.oneof !== undefined) {
      const isFirst = !seen.has(field.oneof);
      seen.add(field.oneof);
      return isFirst && oneof(fields, field.oneof, values, changed, prefix);
    }
    return any(field, values, changed, prefix);
  });
}

function any(field, values, changed, prefix) {
  const path = prefix + field.name;
  return field.kind === "map" || field.repeated ? list(field, path, values, changed)
    : single(field, path, labelOf(field), values, changed);
}

/** A choice of the fields of `name`, of which a message has at most one, and the chosen one. */
function oneof(fields, name, values, changed, prefix) {
  const path = prefix + name;
  const members = fields.filter((field) => field.oneof === name);
  const chosen = members.find((field) => values.has(field, prefix));
  const id = `field-${path}-which`;
  const choose = (event) => {
    values.choices.set(path, event.target.value);
    changed();
  };
  return h("fieldset", { key: path },
    h("legend", null, name, h("span", { class: "type" }, " one of these, or none")),
    h("div", { class: "field", key: "which" },
      h("label", { for: id }, `Which ${name}`),
      h("select", { id, onchange: choose },
        h("option", { value: "" }, ""),
        members.map((field) => h("option", { value: field.name }, field.label)))),
    chosen && h("div", { key: `of ${chosen.name}` }, any(chosen, values, changed, prefix)));
}

function list(field, path, values, changed) {
  const count = values.count(path);
  const resize = (by) => () => {
    values.rows.set(path, Math.max(0, count + by));
    changed();
  };
  const isMap = field.kind === "map";
  const row = (place) => isMap ? entry(field, `${path}.${place}`, place, values, changed)
    : single(field, `${path}.${place}`, `${field.label || "item"} ${place + 1}`, values, changed);
  return h("fieldset", { key: path },
    h("legend", null, labelOf(field), h("span", { class: "type" },
      isMap ? ` map to ${field.value.type}` : ` list of ${field.type}`)),
    Array.from({ length: count }, (_, place) => row(place)),
    h("button", { type: "button", onclick: resize(1), key: "more" }, `Add to ${field.label || "it"}`),
    count > 0 && h("button", { type: "button", onclick: resize(-1), key: "fewer" },
      `Remove the last of ${field.label || "it"}`));
}

function entry(field, path, place, values, changed) {
  const key = { ...field.key, name: "key", type: "key" };
  return h("div", { key: path, class: "entry" },
    single(key, `${path}.key`, `Key ${place + 1}`, values, changed),
    single({ ...field.value, name: "value" }, `${path}.value`, `Value ${place + 1}`, values, changed));
}

function labelOf(field) {
  return field.required ? `${field.label} (needed)` : field.label;
}

export function single(field, path, label, values, changed) {
  if (field.kind === "message") {
    return h("fieldset", { key: path },
      h("legend", null, label, h("span", { class: "type" }, ` ${field.type}`)),
      field.fields.length === 0 ? h("p", { class: "hint" }, "It has no fields.")
        : inputs(field.fields, values, changed, `${path}.`));
  }
  const id = `field-${path}`;
  const about = field.hint === undefined ? null : `${id}-hint`;
  const note = (event) => values.texts.set(path, event.target.value);
  const more = { id, name: path, "aria-describedby": about };
  return h("div", { key: path, class: "field" },
    h("label", { for: id }, label || "The value", h("span", { class: "type" }, ` ${field.type}`)),
    field.kind === "file" ? chosenFile(more, values, path)
      : input(field, more, values, path, note),
    field.kind === "bytes" && file(id, label, path, values, changed),
    about && h("span", { id: about, class: "hint" }, field.hint));
}

/** A file that goes as it is, in a form of several parts. */
function chosenFile(more, values, path) {
  return h("input", { ...more, type: "file",
    onchange: (event) => values.files.set(path, event.target.files[0]) });
}

function input(field, more, values, path, note) {
  switch (field.kind) {
    case "bool":
      return h("select", { ...more, onchange: note },
        ["", "true", "false"].map((word) => h("option", { value: word }, word)));
    case "enum":
      return h("select", { ...more, onchange: note },
        ["", ...field.values].map((word) => h("option", { value: word }, word)));
    case "json":
    case "bytes":
      return h("textarea", { ...more, rows: 2, spellcheck: "false", oninput: note });
    default:
      return h("input", {
        ...more, type: "text", autocomplete: "off", spellcheck: "false", oninput: note,
        inputmode: field.kind === "text" ? null : "decimal",
      });
  }
}

function file(id, label, path, values, changed) {
  const take = async (event) => {
    const [chosen] = event.target.files;
    if (chosen !== undefined) {
      const text = base64(new Uint8Array(await chosen.arrayBuffer()));
      values.texts.set(path, text);
      document.getElementById(id).value = text;
      changed();
    }
  };
  return h("input", { type: "file", "aria-label": `A file for ${label}`, onchange: take });
}

export function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += BASE64_CHUNK) {
    text += String.fromCharCode(...bytes.subarray(at, at + BASE64_CHUNK));
  }
  return btoa(text);
}

/** The message; what is empty is left out. Throws where a text is no value of its field. */
export function message(fields, values, prefix = "") {
  const found = {};
  for (const field of fields.filter((each) => values.has(each, prefix))) {
    // What was chosen is there, even if it is empty.
    const value = whole(field, prefix + field.name, values)
      ?? (field.oneof === undefined ? undefined : emptyOf(field));
    if (value !== undefined) {
      found[field.name] = value;
    }
  }
  return found;
}

/** The value of a field with all of its rows, `undefined` where nothing is filled in. */
export function whole(field, path, values) {
  const places = Array.from({ length: values.count(path) }, (_, place) => `${path}.${place}`);
  if (field.kind === "map") {
    const entries = places.map((each) => [values.text(`${each}.key`),
      valueOf(field.value, `${each}.value`, values) ?? emptyOf(field.value)]);
    return entries.length === 0 ? undefined : Object.fromEntries(entries);
  }
  if (!field.repeated) {
    return valueOf(field, path, values);
  }
  const found = places.map((each) => valueOf(field, each, values) ?? emptyOf(field));
  return found.length === 0 ? undefined : found;
}

function valueOf(field, path, values) {
  if (field.kind === "message") {
    const found = message(field.fields, values, `${path}.`);
    return Object.keys(found).length === 0 ? undefined : found;
  }
  if (field.kind === "file") {
    return values.files.get(path);
  }
  const text = values.text(path);
  if (text === "") {
    return undefined;
  }
  switch (field.kind) {
    case "bool":
      return text === "true";
    case "integer":
    case "number":
      return numberOf(field, text);
    case "json":
      return parsed(field, text);
    default:
      return text;
  }
}

function numberOf(field, text) {
  if (["NaN", "Infinity", "-Infinity"].includes(text)) {
    return text;
  }
  const value = Number(text);
  if (Number.isNaN(value)) {
    throw new Error(`${field.label}: ${text} is no number`);
  }
  return value;
}

function parsed(field, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${field.label}: ${error.message}`);
  }
}

function emptyOf(field) {
  const empty = { message: {}, json: null, bool: false, integer: 0, number: 0, long: "0" };
  return field.kind in empty ? empty[field.kind] : field.values?.[0] ?? "";
}
