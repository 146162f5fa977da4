// What the server tells while somebody looks: one stream, which ends while the page is hidden.

const AGAIN_MS = 2000;
const TOKEN = "pyserve-token";

/** The key that servers which are not on the loopback ask for; kept until the tab closes. */
export function token() {
  return sessionStorage.getItem(TOKEN) ?? "";
}

export function setToken(value) {
  sessionStorage.setItem(TOKEN, value.trim());
}

function headers(more) {
  return token() === "" ? more : { ...more, authorization: `Bearer ${token()}` };
}

/** Thrown for an answer that is no data: `status`, and the words of the server. */
export class Refused extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export async function read(path, options) {
  const answer = await fetch(path, { ...options, headers: headers(options?.headers ?? {}) });
  if (!answer.ok) {
    throw new Refused(answer.status, await words(answer));
  }
  return answer.json();
}

/** Follows the events that a request is answered with, from the first one to the end. */
export async function follow(path, options, onEvent) {
  const answer = await fetch(path, { ...options, headers: headers(options.headers ?? {}) });
  if (!answer.ok) {
    throw new Refused(answer.status, await words(answer));
  }
  let rest = "";
  for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + chunk).split("\n\n");
    rest = events.pop();
    events.forEach((event) => onEvent(...parsed(event)));
  }
}

function parsed(event) {
  const fields = Object.fromEntries(event.split("\n").map((line) => {
    const at = line.indexOf(": ");
    return [line.slice(0, at), line.slice(at + 2)];
  }));
  return [fields.event, JSON.parse(fields.data)];
}

async function words(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text.trim() || `${answer.status}`;
  }
}

/** Follows the events of the server; tells of each, and of what goes wrong, until it is stopped. */
export class Stream {
  #path;
  #onEvent;
  #onTrouble;
  #abort = null;
  #timer = null;

  constructor(path, onEvent, onTrouble) {
    this.#path = path;
    this.#onEvent = onEvent;
    this.#onTrouble = onTrouble;
  }

  get isRunning() {
    return this.#abort !== null;
  }

  start() {
    if (!this.isRunning) {
      this.#abort = new AbortController();
      this.#follow(this.#abort.signal);
    }
  }

  stop() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
  }

  async #follow(signal) {
    try {
      await follow(this.#path, { signal }, (name, data) => this.#tell(name, data));
      this.#onTrouble(new Error("the server has ended"));
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      this.#onTrouble(error);
    }
    if (!signal.aborted) {
      this.#timer = setTimeout(() => this.#follow(signal), AGAIN_MS);
    }
  }

  #tell(name, data) {
    if (name === "trouble") {
      this.#onTrouble(new Error(data));
    } else {
      this.#onEvent(data);
    }
  }
}
