// What the server tells while somebody looks: one stream, which ends while the page is hidden.

const AGAIN_MS = 2000;
const TOKEN = "pyserve-token";

/** The mesh token, which servers that are not on the loopback ask for; kept until the tab closes. */
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
      const answer = await fetch(this.#path, { headers: headers({}), signal });
      if (!answer.ok) {
        throw new Refused(answer.status, await words(answer));
      }
      await this.#take(answer.body.pipeThrough(new TextDecoderStream()));
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

  async #take(body) {
    let rest = "";
    for await (const chunk of body) {
      const events = (rest + chunk).split("\n\n");
      rest = events.pop();
      events.forEach((event) => this.#tell(event));
    }
  }

  #tell(event) {
    const fields = Object.fromEntries(event.split("\n").map((line) => {
      const at = line.indexOf(": ");
      return [line.slice(0, at), line.slice(at + 2)];
    }));
    const data = JSON.parse(fields.data);
    if (fields.event === "trouble") {
      this.#onTrouble(new Error(data));
    } else {
      this.#onEvent(data);
    }
  }
}
