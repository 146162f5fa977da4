// The WebSocket that is built into Node.js: sends some texts, each after the answer to the one
// before, closes, and tells what came on standard output.
//
// node socket.mjs URL SUBPROTOCOL

const [url, protocol] = process.argv.slice(2);
const texts = ["größer", "", "x".repeat(100_000)];
const received = [];
const socket = new WebSocket(url, [protocol]);
const sendNext = () =>
  received.length < texts.length ? socket.send(texts[received.length]) : socket.close(4000, "end");

socket.onopen = sendNext;
socket.onmessage = ({ data }) => {
  received.push(data);
  sendNext();
};
socket.onerror = () => {
  console.error(`the socket of ${url} failed`);
  process.exitCode = 1;
};
socket.onclose = ({ code, wasClean }) =>
  console.log(JSON.stringify({ protocol: socket.protocol, received, code, wasClean }));
