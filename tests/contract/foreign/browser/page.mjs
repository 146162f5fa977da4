// The page: what it does for the driver is called by name, with JSON in and out.
//
// A call and its outcome have the form of ../calls.py, whichever client makes it.

import * as connect from "./connect.mjs";
import * as google from "./google.mjs";
import { loadEcho } from "./messages.mjs";
import { listen, talk } from "./sockets.mjs";

const CLIENTS = {
  "connect": (echo, target) => connect.client(echo, target, "connect-binary"),
  "connect-json": (echo, target) => connect.client(echo, target, "connect-json"),
  "connect-get": (echo, target) => connect.client(echo, target, "connect-get"),
  "connect-grpc-web": (echo, target) => connect.client(echo, target, "grpc-web"),
  "grpc-web": (echo, target) => google.client(echo, target, "binary"),
  "grpc-web-text": (echo, target) => google.client(echo, target, "text"),
};

async function perform(name, target, call) {
  const echo = await loadEcho("descriptors.bin");
  const started = performance.now();
  const outcome = await CLIENTS[name](echo, target)(call);
  return { ...outcome, elapsed_s: (performance.now() - started) / 1000 };
}

Object.assign(window, { perform, listen, talk });
