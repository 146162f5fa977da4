// From calls to the messages of services.echo and back, by descriptors that the page loads.

import { create, createFileRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import { AnySchema, FileDescriptorSetSchema, anyPack, anyUnpack } from "@bufbuild/protobuf/wkt";

export const toBase64 = (bytes) =>
  btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

export async function loadEcho(url) {
  const answer = await fetch(url);
  if (!answer.ok) {
    throw new Error(`${url}: ${answer.status}`);
  }
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, bytes));
  return new Echo(registry);
}

class Echo {
  constructor(registry) {
    this.registry = registry;
    this.service = registry.getService("services.echo.Echo");
  }

  // The description of a method, also of one that the service does not have.
  method(name) {
    const found = this.service.methods.find((method) => method.name === name);
    if (found) {
      return found;
    }
    const model = this.service.methods.find((method) => method.name === "Perform");
    const localName = name[0].toLowerCase() + name.slice(1);
    return Object.assign(Object.create(model), { name, localName });
  }

  request(call) {
    const message = call.messages[0];
    if (call.method === "Echo") {
      const schema = this.registry.getMessage("services.echo.EchoRequest");
      return create(schema, { payload: fromBase64(message.payload) });
    }
    const each = create(this.registry.getMessage("services.echo.PerformRequest"), {
      payload: fromBase64(message.payload),
      responseBytes: message.response_bytes,
      delayS: message.delay_s,
      describe: message.describe,
    });
    if (message.status_code) {
      each.status = create(this.registry.getMessage("services.echo.Status"), {
        code: message.status_code,
        message: message.status_message,
        details: message.details.map((payload) => this.detail(payload)),
      });
    }
    return call.method === "PerformStream"
      ? create(this.registry.getMessage("services.echo.PerformStreamRequest"),
          { messages: call.answers, each })
      : each;
  }

  detail(payload) {
    const schema = this.registry.getMessage("services.echo.EchoReply");
    return anyPack(schema, create(schema, { payload: fromBase64(payload) }));
  }

  // Adds an answer to the outcome.
  take(outcome, reply) {
    outcome.payloads.push(toBase64(reply.payload));
    outcome.seen_metadata = (reply.facts?.metadata ?? []).map(
      ({ key, value }) => [key, toBase64(value)]);
  }

  // The payloads of the details in `grpc-status-details-bin`, which is a Status as ours is.
  detailsOf(bytes) {
    const status = fromBinary(this.registry.getMessage("services.echo.Status"), bytes);
    return status.details.map((any) => toBase64(anyUnpack(any, this.registry).payload));
  }

  serialize(message) {
    return toBinary(this.registry.getMessage(message.$typeName), message);
  }
}

export function newOutcome() {
  return { code: 0, message: "", payloads: [], details: [] };
}

// What metadata is in a call, for clients that want text: `-bin` values are base64 there.
export function textOf([key, base64]) {
  return [key, key.endsWith("-bin") ? base64.replace(/=+$/, "") : atob(base64)];
}

// And back: text and base64 become the bytes that both stand for.
export function bytesOf([key, text]) {
  const standard = (value) => value.replace(/-/g, "+").replace(/_/g, "/");
  const bytes = key.endsWith("-bin") ? fromBase64(standard(text)) : new TextEncoder().encode(text);
  return [key, toBase64(bytes)];
}
