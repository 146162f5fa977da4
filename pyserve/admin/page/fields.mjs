// A form for a message, from the fields that a descriptor has, and the message from the form.

import { h } from "./dom.mjs";

const BASE64_CHUNK = 0x8000;

/** What somebody has filled in: texts by path, and how many rows each list has. */
export class Values {
  texts = new Map();
  rows = new Map();

  text(path) {
    return this.texts.get(path) ?? "";
  }

  count(path) {
    return this.rows.get(path) ?? 0;
  }
}

/** The inputs of `fields`; `changed` is called when there are more or fewer of them. */
export function inputs(fields, values, changed, prefix = "") {
  return fields.map((field) => {
    const path = prefix + field.name;
    return field.repeated ? list(field, path, values, changed)
      : single(field, path, field.label, values, changed);
  });
}

function list(field, path, values, changed) {
  const count = values.count(path);
  const resize = (by) => () => {
    values.rows.set(path, Math.max(0, count + by));
    changed();
  };
  return h("fieldset", { key: path },
    h("legend", null, field.label, h("span", { class: "type" }, ` list of ${field.type}`)),
    Array.from({ length: count }, (_, place) =>
      single(field, `${path}.${place}`, `${field.label} ${place + 1}`, values, changed)),
    h("button", { type: "button", onclick: resize(1), key: "more" }, `Add to ${field.label}`),
    count > 0 && h("button", { type: "button", onclick: resize(-1), key: "fewer" }, "Remove the last"));
}

function single(field, path, label, values, changed) {
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
    h("label", { for: id }, label, h("span", { class: "type" }, ` ${field.type}`),
      field.oneof && h("span", { class: "type" }, `, one of ${field.oneof}`)),
    input(field, more, values, path, note),
    field.kind === "bytes" && file(id, label, path, values, changed),
    about && h("span", { id: about, class: "hint" }, field.hint));
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

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += BASE64_CHUNK) {
    text += String.fromCharCode(...bytes.subarray(at, at + BASE64_CHUNK));
  }
  return btoa(text);
}

/** The message; what is empty is left out. Throws where a text is no value of its field. */
export function message(fields, values, prefix = "") {
  const found = {};
  for (const field of fields) {
    const path = prefix + field.name;
    const value = field.repeated
      ? Array.from({ length: values.count(path) }, (_, place) =>
        valueOf(field, `${path}.${place}`, values) ?? emptyOf(field))
      : valueOf(field, path, values);
    if (value !== undefined && !(field.repeated && value.length === 0)) {
      found[field.name] = value;
    }
  }
  return found;
}

function valueOf(field, path, values) {
  if (field.kind === "message") {
    const found = message(field.fields, values, `${path}.`);
    return Object.keys(found).length === 0 ? undefined : found;
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
  return { message: {}, json: null, bool: false, integer: 0, number: 0, long: "0" }[field.kind] ?? "";
}
