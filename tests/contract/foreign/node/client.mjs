// Does one call, as told on standard input, and tells how it ended on standard output.
//
// node client.mjs ADDRESS PROTO_ROOT < call.json; see ../calls.py for both forms.

import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [address, protoRoot] = process.argv.slice(2);
const call = JSON.parse(readFileSync(0, "utf8"));
const GZIP = 2; // grpc.compressionAlgorithms.gzip

function echoClient() {
  const definition = loader.loadSync("services/echo/echo.proto", {
    includeDirs: [protoRoot],
    keepCase: true,
    longs: Number,
    defaults: true,
  });
  const { Echo } = grpc.loadPackageDefinition(definition).services.echo;
  return new Echo(address, grpc.credentials.createInsecure(), {
    "grpc.max_receive_message_length": -1,
    ...(call.compress ? { "grpc.default_compression_algorithm": GZIP } : {}),
  });
}

function request(message) {
  const { status_code, status_message, details, payload, ...rest } = message;
  if (details.length) {
    throw new Error("this client packs no details of a status");
  }
  return {
    ...rest,
    payload: Buffer.from(payload, "base64"),
    ...(status_code ? { status: { code: status_code, message: status_message } } : {}),
  };
}

function sentMetadata() {
  const metadata = new grpc.Metadata();
  for (const [key, value] of call.metadata) {
    const bytes = Buffer.from(value, "base64");
    metadata.add(key, key.endsWith("-bin") ? bytes : bytes.toString("ascii"));
  }
  return metadata;
}

function pairs(metadata) {
  return Object.keys(metadata.getMap()).flatMap((key) =>
    metadata.get(key).map((value) => [key, Buffer.from(value).toString("base64")]),
  );
}

// Starts the call and sends what is to be sent; `onAnswer` hears unary answers.
function start(client, messages, options, onAnswer) {
  const unaryDone = (error, answer) => answer && onAnswer(answer);
  switch (call.method) {
    case "Perform":
      return client.Perform(messages[0], sentMetadata(), options, unaryDone);
    case "PerformStream":
      return client.PerformStream(
        { messages: call.answers, each: messages[0] }, sentMetadata(), options);
    case "Collect": {
      const running = client.Collect(sentMetadata(), options, unaryDone);
      messages.forEach((message) => running.write(message));
      running.end();
      return running;
    }
    case "Converse": {
      const running = client.Converse(sentMetadata(), options);
      running.write(messages[0]);
      return running;
    }
    default: {
      const { requestSerialize, responseDeserialize } = client.Perform;
      return client.makeUnaryRequest(
        `/services.echo.Echo/${call.method}`,
        requestSerialize, responseDeserialize, messages[0], sentMetadata(), options, unaryDone);
    }
  }
}

function perform(client) {
  const started = performance.now();
  const messages = call.messages.map(request);
  const outcome = { payloads: [], initial_metadata: [], trailing_metadata: [] };
  return new Promise((resolve) => {
    const onAnswer = (answer) => {
      if (call.method === "Collect") {
        outcome.collected = [answer.messages, answer.payload_bytes];
        return;
      }
      outcome.payloads.push(answer.payload.toString("base64"));
      outcome.seen_metadata = (answer.facts?.metadata ?? []).map(
        ({ key, value }) => [key, value.toString("base64")]);
      if (outcome.payloads.length === call.cancel_after) {
        running.cancel();
      } else if (call.method === "Converse") {
        const next = messages[outcome.payloads.length];
        next ? running.write(next) : running.end();
      }
    };
    const options = { deadline: Date.now() + call.timeout_s * 1000 };
    const running = start(client, messages, options, onAnswer);
    running.on("metadata", (metadata) => (outcome.initial_metadata = pairs(metadata)));
    if (call.method === "PerformStream" || call.method === "Converse") {
      running.on("data", onAnswer);
      running.on("error", () => {}); // Its status follows by the event below.
    }
    running.on("status", ({ code, details, metadata }) => {
      outcome.trailing_metadata = pairs(metadata);
      // A unary answer is handed over right after the status.
      setImmediate(() => resolve({
        ...outcome, code, message: details, elapsed_s: (performance.now() - started) / 1000 }));
    });
    if (call.cancel_after === 0) {
      setImmediate(() => running.cancel());
    }
  });
}

const client = echoClient();
console.log(JSON.stringify(await perform(client)));
client.close();
