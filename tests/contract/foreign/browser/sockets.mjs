// WebSocket and server-sent events, as browsers have them built in.

import { fromBase64, toBase64 } from "./messages.mjs";

// Sends texts and bytes ({ text } or { bytes }) one by one, each after the answer to the one
// before, then closes; tells what came back.
export function talk(url, protocols, messages) {
  const socket = new WebSocket(url, protocols);
  socket.binaryType = "arraybuffer";
  const received = [];
  const sendNext = () => {
    const next = messages[received.length];
    if (next === undefined) {
      socket.close(4000, "enough");
    } else {
      socket.send(next.text ?? fromBase64(next.bytes));
    }
  };
  return new Promise((resolve, reject) => {
    socket.onopen = sendNext;
    socket.onmessage = ({ data }) => {
      received.push(
        typeof data === "string" ? { text: data } : { bytes: toBase64(new Uint8Array(data)) });
      sendNext();
    };
    socket.onerror = () => reject(new Error(`the socket of ${url} failed`));
    socket.onclose = ({ code, reason, wasClean }) =>
      resolve({ received, code, reason, wasClean, protocol: socket.protocol });
  });
}

// Reads so many events, each with its name, id and the milliseconds at which it came.
export function listen(url, names, count) {
  const source = new EventSource(url);
  const events = [];
  return new Promise((resolve, reject) => {
    for (const name of names) {
      source.addEventListener(name, ({ data, lastEventId }) => {
        events.push({ name, data, id: lastEventId, at_ms: performance.now() });
        if (events.length === count) {
          source.close();
          resolve(events);
        }
      });
    }
    source.onerror = () => reject(new Error(`the events of ${url} ended`));
  });
}
