// @connectrpc/connect-web: its Connect and its gRPC-Web transport.

import { ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { bytesOf, newOutcome, textOf, toBase64 } from "./messages.mjs";

function transport(echo, baseUrl, protocol) {
  const jsonOptions = { registry: echo.registry };
  switch (protocol) {
    case "connect-binary":
      return createConnectTransport({ baseUrl, jsonOptions, useBinaryFormat: true });
    case "connect-json":
      return createConnectTransport({ baseUrl, jsonOptions });
    case "connect-get":
      return createConnectTransport({ baseUrl, jsonOptions, useHttpGet: true });
    case "grpc-web":
      return createGrpcWebTransport({ baseUrl });
  }
}

export function client(echo, target, protocol) {
  return async (call) => {
    const method = echo.method(call.method);
    const service = Object.assign(Object.create(echo.service), {
      method: { [method.localName]: method }, methods: [method] });
    const stub = createClient(service, transport(echo, target, protocol));
    const outcome = newOutcome();
    const canceller = new AbortController();
    const options = {
      headers: call.metadata.map(textOf),
      timeoutMs: call.timeout_s * 1000,
      signal: canceller.signal,
      onHeader: (headers) => (outcome.initial_metadata = pairs(headers)),
      onTrailer: (trailers) => (outcome.trailing_metadata = pairs(trailers)),
    };
    try {
      const started = stub[method.localName](echo.request(call), options);
      if (call.cancel_after === 0) {
        setTimeout(() => canceller.abort(), 50);
      }
      if (method.methodKind === "unary") {
        echo.take(outcome, await started);
        return outcome;
      }
      for await (const reply of started) {
        echo.take(outcome, reply);
        if (outcome.payloads.length === call.cancel_after) {
          canceller.abort();
        }
      }
    } catch (reason) {
      fail(outcome, echo, ConnectError.from(reason));
    }
    return outcome;
  };
}

function fail(outcome, echo, error) {
  const schema = echo.registry.getMessage("services.echo.EchoReply");
  outcome.code = error.code;
  outcome.message = error.rawMessage;
  outcome.details = error.findDetails(schema).map((detail) => toBase64(detail.payload));
  // An error has headers and trailers together.
  outcome.trailing_metadata = pairs(error.metadata);
}

const pairs = (headers) => [...headers.entries()].map(bytesOf);
