// One call from the page: what goes, what comes as it comes, and how to end it. Nothing is kept.

import { base64, message, whole } from "./fields.mjs";
import { follow, read } from "./live.mjs";

const HEADERS = { "content-type": "application/json", "x-pyserve-page": "1" };
const ENTRIES_MAX = 500;
// Streams may be faster than anybody reads.
const DRAW_MS = 50;

/** A call that runs or has ended; `changed` is called whenever there is something new. */
export class Call {
  #abort = new AbortController();
  #changed;
  #id = "";
  #began = performance.now();
  #timer = null;
  isRunning = true;
  takesMore = false;
  head = null;
  // Messages both ways, each with its time.
  entries = [];
  leftOut = 0;
  text = "";
  pieces = [];
  error = null;
  problem = "";
  tookS = null;
  explanation = "";
  isCut = false;

  constructor(request, changed) {
    this.#changed = () => {
      this.#timer ??= setTimeout(() => {
        this.#timer = null;
        changed();
      }, DRAW_MS);
    };
    this.takesMore = request.has_more === true;
    this.#run(request);
  }

  async #run(request) {
    try {
      await follow("/api/call", {
        method: "POST", headers: HEADERS, body: JSON.stringify(request), signal: this.#abort.signal,
      }, (name, data) => this.#take(name, data));
      if (this.isRunning) {
        this.problem = "The server has ended amid the call.";
      }
    } catch (error) {
      this.problem = this.#abort.signal.aborted ? "Cancelled." : error.message;
    }
    this.isRunning = false;
    this.takesMore = false;
    this.#changed();
  }

  #take(name, data) {
    switch (name) {
      case "begun":
        this.#id = data.call;
        break;
      case "head":
        this.head = data;
        this.explanation = data.headers["x-pyserve-explain"] ?? "";
        break;
      case "message":
        this.#add("in", data.text);
        break;
      case "piece":
        this.text += data.text ?? "";
        if (data.base64 !== undefined) {
          this.pieces.push(Uint8Array.from(atob(data.base64), (each) => each.charCodeAt(0)));
        }
        break;
      case "status":
        this.#end(JSON.parse(data.text));
        break;
      default:
        this.isRunning = false;
        this.tookS = data.took_s;
        this.problem = data.reason ?? "";
        this.isCut = data.is_cut === true;
    }
    this.#changed();
  }

  #end({ error, metadata }) {
    this.error = error ?? null;
    this.explanation = metadata?.["x-pyserve-explain"]?.[0] ?? "";
  }

  #add(way, text) {
    this.entries.push({ way, text, atS: (performance.now() - this.#began) / 1000 });
    if (this.entries.length > ENTRIES_MAX) {
      this.entries.shift();
      this.leftOut += 1;
    }
  }

  /** Whether messages can be sent now. */
  get isOpen() {
    return this.isRunning && this.takesMore && this.#id !== "";
  }

  /** Sends one more message, which is JSON. */
  async send(text) {
    this.#add("out", text);
    this.#changed();
    await this.#post("message", { message: text });
  }

  /** Says that no more messages come. */
  async finish() {
    this.takesMore = false;
    this.#changed();
    await this.#post("end", {});
  }

  cancel() {
    this.#abort.abort();
  }

  #post(what, data) {
    return read(`/api/call/${encodeURIComponent(this.#id)}/${what}`,
      { method: "POST", headers: HEADERS, body: JSON.stringify(data) });
  }
}

/** The message that is filled in, as JSON. */
export function messageOf(form, state) {
  return state.asJson ? state.json : JSON.stringify(message(form.fields, state.values));
}

/** What the server is asked to call; throws where something is missing or cannot be read. */
export async function requestOf(form, state) {
  const common = { authorization: state.authorization, timeout_s: Number(state.timeout) };
  if (form.kind === "rpc") {
    const isStream = form.takes === "stream" || form.answers === "stream";
    const takesMore = form.takes === "stream";
    return {
      kind: "rpc", path: form.path, application: form.application, is_stream: isStream,
      has_more: takesMore, messages: takesMore ? [] : [messageOf(form, state)], ...common,
    };
  }
  const { path, headers } = placed(form, state.values);
  const body = await bodyOf(form, state);
  return {
    kind: "http", verb: state.values.text("verb") || form.verb, path, body: body.content,
    headers: { ...headers, ...(body.type && { "content-type": body.type }) }, ...common,
  };
}

/** The path with its parameters and the query, and the headers. */
function placed(form, values) {
  let path = form.path || values.text("path") || "/";
  const query = new URLSearchParams();
  const headers = {};
  const cookies = [];
  for (const field of form.parameters) {
    const value = whole(field, parameterPath(field), values);
    if (value === undefined) {
      if (field.required) {
        throw new Error(`${field.label} is missing.`);
      }
      continue;
    }
    const texts = [value].flat().map((each) => typeof each === "object" ? JSON.stringify(each) : `${each}`);
    if (field.in === "path") {
      path = path.replace(`{${field.name}}`, encodeURIComponent(texts.join(",")));
    } else if (field.in === "query") {
      texts.forEach((text) => query.append(field.name, text));
    } else if (field.in === "header") {
      headers[field.name] = texts.join(",");
    } else {
      cookies.push(`${field.name}=${encodeURIComponent(texts.join(","))}`);
    }
  }
  if (cookies.length > 0) {
    headers.cookie = cookies.join("; ");
  }
  return { path: query.size > 0 ? `${path}?${query}` : path, headers };
}

/** Where the value of a parameter is among the values; a query and a path may have one name. */
export function parameterPath(field) {
  return `${field.in}:${field.name}`;
}

async function bodyOf(form, state) {
  const { body } = form;
  if (body === null) {
    return { content: "" };
  }
  if (body.kind === "raw") {
    const text = state.values.text("body");
    const chosen = state.values.files.get("file");
    const type = state.values.text("type") || body.type;
    const bytes = chosen ? await chosen.arrayBuffer() : new TextEncoder().encode(text);
    return { type: bytes.byteLength > 0 ? type.replace("*/*", "application/json") : "",
      content: base64(new Uint8Array(bytes)) };
  }
  if (body.kind === "json") {
    const text = state.asJson ? state.json : JSON.stringify(bodyValue(body, state.values));
    return { type: "application/json", content: base64(new TextEncoder().encode(text)) };
  }
  return encodedForm(body, state.values);
}

/** The value of a body of JSON. */
export function bodyValue(body, values) {
  return whole(body.field, "body", values) ?? (body.field.kind === "message" ? {} : null);
}

async function encodedForm(body, values) {
  const isParts = body.kind === "form";
  const data = isParts ? new FormData() : new URLSearchParams();
  for (const field of body.field.fields ?? []) {
    const value = whole(field, `body.${field.name}`, values);
    for (const each of value === undefined ? [] : [value].flat()) {
      data.append(field.name, each instanceof File || typeof each !== "object" ? each
        : JSON.stringify(each));
    }
  }
  // The browser knows how a form is written.
  const answer = new Response(data);
  return { type: answer.headers.get("content-type"),
    content: base64(new Uint8Array(await answer.arrayBuffer())) };
}
