"""``pyserve call``: one call of any gRPC server that answers reflection."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from pyserve.cli.commands import CommandFailed
from pyserve.cli.messages import as_json, read_messages
from pyserve.cli.reflection import Reflection
from pyserve.cli.settings import PEM_FILE, Seconds, settings_for
from pyserve.cli.tls import ClientTls, open_channel
from pyserve.config import check_address
from pyserve.driver.session import await_session, end_session

_DEFAULT_ADDRESS = "127.0.0.1:8000"


@click.command(short_help="Call a method of a running service.")
@click.argument("method", metavar="SERVICE/METHOD")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE | @FILE | -]...")
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The server; by default the mesh that runs here, or else 127.0.0.1:8000.",
)
@click.option("--controller", metavar="HOST:PORT", help="Ask that controller for the address.")
@click.option("--tls", "wants_tls", is_flag=True, help="Speak TLS; the options below mean it too.")
@click.option("--ca", **PEM_FILE, help="Roots of the server's certificate. [default: the system's]")
@click.option("--cert", **PEM_FILE, help="Certificate to show, and its issuers.")
@click.option("--key", **PEM_FILE, help="Private key of --cert, not encrypted.")
@click.option(
    "--server-name", metavar="NAME", help="Name in the server's certificate, if not its address."
)
@click.option("--metadata", "-H", multiple=True, metavar="KEY=VALUE", help="Sent with the call.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds until the call is given up.",
)
@click.option("--timing", is_flag=True, help="Print how long the call took, to standard error.")
def call(
    method: str,
    arguments: tuple[str, ...],
    address: str | None,
    controller: str | None,
    wants_tls: bool,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    server_name: str | None,
    metadata: tuple[str, ...],
    timeout_s: float,
    timing: bool,
) -> None:
    """Call SERVICE/METHOD and print each response as one line of JSON.

    KEY=VALUE sets a field (a.b=1 an inner one, repeated for lists, key=@file from a file);
    @FILE and - give whole messages as JSON, for request streams one after the other.
    """
    service, separator, name = method.strip("/").rpartition("/")
    if not separator:
        raise click.UsageError(f"{method!r} is no method; write package.Service/Method")
    if address is not None:
        check_address("--address", address, unix=True)
    tls = ClientTls.of(wants_tls, ca=ca, cert=cert, key=key, server_name=server_name)
    target = address or _mesh_address(controller, tls)
    pairs = _metadata(metadata)
    with open_channel(target, tls) as channel:
        try:
            reflection = Reflection(channel, timeout_s)
            descriptor = reflection.method(service, name)
            reflection.close()
            requests = read_messages(descriptor.input_type, arguments)
            _run(channel, descriptor, requests, pairs, timeout_s=timeout_s, timing=timing)
        except grpc.RpcError as error:
            raise CommandFailed(_describe(error, method, target, tls)) from None


def _mesh_address(controller: str | None, tls: ClientTls | None) -> str:
    session = await_session(settings_for(controller))
    if session is None:
        return _DEFAULT_ADDRESS
    try:
        found = session.client.status()
    finally:
        end_session()
    addresses = found.addresses
    if addresses and found.ingress.speaks_tls and tls is None:
        raise CommandFailed(
            f"the ingress at {addresses[0]} speaks TLS; add --tls, and --ca FILE with the root of "
            f"its certificate if the system does not know it"
        )
    return addresses[0] if addresses else _DEFAULT_ADDRESS


def _metadata(pairs: tuple[str, ...]) -> list[tuple[str, str | bytes]]:
    found: list[tuple[str, str | bytes]] = []
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise click.UsageError(f"--metadata {pair!r}: write key=value")
        key = key.lower()
        found.append((key, value.encode() if key.endswith("-bin") else value))
    return found


def _run(
    channel: grpc.Channel,
    method: MethodDescriptor,
    requests: Iterator[Message],
    metadata: list[tuple[str, str | bytes]],
    *,
    timeout_s: float,
    timing: bool,
) -> None:
    # A request that does not fit must be a message of ours, not an exception in grpc's thread.
    messages = list(requests)
    if not method.client_streaming and len(messages) != 1:
        raise click.UsageError(
            f"{method.full_name} takes one request, but {len(messages)} are given"
        )
    started = time.perf_counter()
    responses = _responses(channel, method, messages, metadata, timeout_s)
    first_s: float | None = None
    count = 0
    for response in responses:
        first_s = time.perf_counter() - started if first_s is None else first_s
        count += 1
        click.echo(as_json(response))
        sys.stdout.flush()
    if timing:
        total_ms = (time.perf_counter() - started) * 1e3
        first = f", first after {first_s * 1e3:.2f} ms" if first_s is not None and count > 1 else ""
        click.echo(f"{count} response(s) in {total_ms:.2f} ms{first}", err=True)


def _responses(
    channel: grpc.Channel,
    method: MethodDescriptor,
    messages: list[Message],
    metadata: list[tuple[str, str | bytes]],
    timeout_s: float,
) -> Iterator[Message]:
    kinds: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    output = message_factory.GetMessageClass(method.output_type)
    stub = kinds[method.client_streaming, method.server_streaming](
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=output.FromString,
    )
    request = iter(messages) if method.client_streaming else messages[0]
    answer = stub(request, timeout=timeout_s, metadata=metadata)
    return iter(answer) if method.server_streaming else iter([answer])


def _describe(error: grpc.RpcError, method: str, target: str, tls: ClientTls | None) -> str:
    call_: Any = error  # What a stub raises is the call itself.
    code, details = call_.code(), call_.details()
    text = f"{method} at {target}: {code.name}: {details}"
    if code is grpc.StatusCode.UNAVAILABLE:
        text += (
            "; look with `pyserve status` whether something listens there, and add --tls if it "
            "speaks TLS"
            if tls is None
            else f"; {tls.advice(target)}"
        )
    return text
