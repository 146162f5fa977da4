// grpc-web, Google's client: the text protocol for streams and calls, the binary one for calls.

import { fromBinary } from "@bufbuild/protobuf";
import { GrpcWebClientBase, MethodDescriptor, MethodType } from "grpc-web";
import { bytesOf, fromBase64, newOutcome, textOf } from "./messages.mjs";

const CANCELLED = 1;

export function client(echo, target, format) {
  return (call) => {
    const base = new GrpcWebClientBase({ format });
    const method = echo.method(call.method);
    const isStream = method.methodKind === "server_streaming";
    const path = `/services.echo.Echo/${call.method}`;
    const descriptor = new MethodDescriptor(
      path, isStream ? MethodType.SERVER_STREAMING : MethodType.UNARY, Object, Object,
      (request) => echo.serialize(request), (bytes) => fromBinary(method.output, bytes));
    const metadata = Object.fromEntries(call.metadata.map(textOf));
    metadata.deadline = String(Date.now() + call.timeout_s * 1000);
    const request = echo.request(call);
    return new Promise((resolve) => {
      const running = isStream
        ? base.serverStreaming(target + path, request, metadata, descriptor)
        : base.rpcCall(target + path, request, metadata, descriptor, (error, reply) =>
            error ? running.failed(error) : running.replied(reply));
      follow(running, echo, call, isStream, resolve);
    });
  };
}

function follow(running, echo, call, isStream, resolve) {
  const outcome = newOutcome();
  const cancel = () => {
    running.cancel(); // It says nothing more after that.
    resolve({ ...outcome, code: CANCELLED });
  };
  running.failed = ({ code, message, metadata }) => {
    Object.assign(outcome, { code, message, trailing_metadata: pairs(metadata) });
    const details = metadata?.["grpc-status-details-bin"];
    outcome.details = details ? echo.detailsOf(fromBase64(details)) : [];
    resolve(outcome);
  };
  running.on("metadata", (metadata) => (outcome.initial_metadata = pairs(metadata)));
  running.on("status", ({ code, metadata }) => {
    if (code === 0) {
      outcome.trailing_metadata = pairs(metadata);
    }
  });
  // The status of a call is told when its trailers were read, its reply and the end of a stream
  // when the whole answer was: that may be a later event of the browser.
  running.replied = (reply) => {
    echo.take(outcome, reply);
    resolve(outcome);
  };
  if (isStream) {
    running.on("error", running.failed);
    running.on("end", () => resolve(outcome));
    running.on("data", (reply) => {
      echo.take(outcome, reply);
      if (outcome.payloads.length === call.cancel_after) {
        cancel();
      }
    });
  }
  if (call.cancel_after === 0) {
    setTimeout(cancel, 50);
  }
}

const pairs = (metadata) => Object.entries(metadata ?? {}).map(bytesOf);
