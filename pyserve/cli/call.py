"""``pyserve call``: one call of any gRPC server that answers reflection."""

from __future__ import annotations

import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from pyserve.aio.certificates import check_client_files, read_file
from pyserve.cli.commands import CommandFailed
from pyserve.cli.reflection import Reflection, as_json, read_messages
from pyserve.cli.settings import PEM_FILE, Seconds, settings_for
from pyserve.config import check_address
from pyserve.config.tls import TlsOrigins
from pyserve.driver.client import own_channel
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
    attempt = _Attempt(target, tls, timeout_s)
    with open_channel(target, tls) as channel:
        try:
            reflection = Reflection(channel, timeout_s)
            descriptor = reflection.method(service, name)
            reflection.close()
            requests = read_messages(descriptor.input_type, arguments)
            attempt.on_reached()
            _run(channel, descriptor, requests, pairs, timeout_s=timeout_s, timing=timing)
        except grpc.RpcError as error:
            raise CommandFailed(attempt.describe(error, method)) from None


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


class _Attempt:
    """Knows how far a call has come, so that a failure names the option that would help."""

    def __init__(self, target: str, tls: ClientTls | None, timeout_s: float) -> None:
        self._target = target
        self._tls = tls
        self._timeout_s = timeout_s
        self._is_reached = False
        self._began_at = time.monotonic()

    def on_reached(self) -> None:
        """Take down that the server has answered, and that the call itself begins now."""
        self._is_reached = True
        self._began_at = time.monotonic()

    def describe(self, error: grpc.RpcError, method: str) -> str:
        """Return what has failed, and what to do about it."""
        call_: Any = error  # What a stub raises is the call itself.
        code = call_.code()
        advice = self._advice(code)
        text = f"{method} at {self._target}: {code.name}: {call_.details()}"
        return f"{text}; {advice}" if advice else text

    def _advice(self, code: grpc.StatusCode) -> str:
        waited_s = time.monotonic() - self._began_at
        # A limit of the server's own ends calls earlier; its text says which one it is.
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and waited_s > 0.9 * self._timeout_s:
            return f"it was given up after {self._timeout_s:g} s; --timeout SECONDS gives it longer"
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return "show a token with --metadata authorization='Bearer TOKEN'"
        if code is not grpc.StatusCode.UNAVAILABLE:
            return ""
        if self._is_reached:
            return (
                "the server was reached, and has ended the call or gone away meanwhile: "
                "`pyserve status` and `pyserve logs` tell more of a mesh, --address names another "
                "server"
            )
        if self._tls is not None:
            return self._tls.advice(self._target)
        return (
            "look with `pyserve status` whether something listens there, and add --tls if it "
            "speaks TLS"
        )


# TLS of `pyserve call`: the files that options name, and what a failed handshake means.

# A handshake on a network that works; this one only looks for a better text.
_LOOK_TIMEOUT_S = 3.0
# The preface of HTTP/2 and empty settings (RFC 9113, section 3.4).
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
# Of OpenSSL's x509_vfy.h, which the standard library has no names for.
_NOT_YET_GOOD, _EXPIRED = 9, 10
_UNKNOWN_ROOTS = (2, 18, 19, 20, 21)
_OTHER_NAMES = (62, 64)
_ORIGINS = TlsOrigins(cert_file="--cert", key_file="--key", ca_file="--ca")


@dataclass(frozen=True, kw_only=True)
class ClientTls:
    """The certificates that a client trusts, and its own.

    Attributes:
        ca: Roots of the server's certificate; ``None``: those of the system.
        cert: Certificate of the client, and its issuers; ``None``: it shows none.
        key: The private key of ``cert``.
        server_name: A name in the server's certificate; ``None``: what is dialled.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    @classmethod
    def of(
        cls,
        wanted: bool,
        *,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        server_name: str | None,
    ) -> ClientTls | None:
        """Read options; ``None``: they ask for no TLS.

        Raises:
            click.UsageError: One of ``--cert`` and ``--key`` is missing.
            OptionError: A file cannot be read or used.
        """
        if (cert is None) != (key is None):
            given, missing = ("--cert", "--key") if key is None else ("--key", "--cert")
            raise click.UsageError(f"{given} is given without {missing}; they belong together")
        if not (wanted or ca or cert or server_name):
            return None
        check_client_files(ca, cert, key, _ORIGINS)
        return cls(ca=ca, cert=cert, key=key, server_name=server_name)

    def credentials(self) -> grpc.ChannelCredentials:
        """Return what a secure channel of grpc takes."""
        return grpc.ssl_channel_credentials(
            *(
                None if path is None else read_file("the file", path)
                for path in (self.ca, self.key, self.cert)
            )
        )

    def advice(self, target: str) -> str:
        """Shake hands once more, and return what is to be done where that fails."""
        host, _, port = target.rpartition(":")
        host = host.strip("[]")
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(["h2"])
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        try:
            with (
                socket.create_connection((host, int(port)), _LOOK_TIMEOUT_S) as plain,
                context.wrap_socket(plain, server_hostname=self.server_name or host) as connection,
            ):
                connection.sendall(_HELLO)
                # Since TLS 1.3 a server looks at the client's certificate after the handshake, and
                # not every one says why it closes; a server of HTTP/2 that stays answers at once.
                has_answered = bool(connection.recv(1))
        except ssl.SSLCertVerificationError as error:
            return self._of_certificate(error)
        except ssl.SSLError as error:
            return self._of_refusal(error.reason)
        except ConnectionResetError as error:
            return self._of_refusal(error.strerror)
        except (OSError, ValueError) as error:
            return f"{target} cannot be reached: {error}"
        if not has_answered:
            return self._of_refusal("it closes the connection")
        return "a TLS connection can be made, so look at the server's log"

    def _of_certificate(self, error: ssl.SSLCertVerificationError) -> str:
        if error.verify_code in (_EXPIRED, _NOT_YET_GOOD):
            return f"the server's certificate is not good today ({error.verify_message})"
        if error.verify_code in _OTHER_NAMES:
            return (
                f"the server's certificate is for another name ({error.verify_message}); give one "
                f"that it carries with --server-name"
            )
        if error.verify_code in _UNKNOWN_ROOTS:
            known = "the system knows" if self.ca is None else f"is in {self.ca}"
            return (
                f"the server's certificate comes from no root that {known}; give the root's file "
                f"with --ca"
            )
        return f"the server's certificate is refused: {error.verify_message}"

    def _of_refusal(self, reason: str | None) -> str:
        if reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING"):
            return "the server does not speak TLS at this address; leave --tls out"
        if self.cert is None:
            return (
                f"the server ends the handshake ({reason}); if it wants clients to show a "
                f"certificate, give one with --cert and --key"
            )
        return f"the server does not take the certificate {self.cert} ({reason})"


def open_channel(target: str, tls: ClientTls | None) -> grpc.Channel:
    """Return a channel to ``host:port``, which uses no proxy."""
    options: list[tuple[str, str | int]] = [
        ("grpc.enable_http_proxy", 0),
        # The user has asked for the answer, however long it is.
        ("grpc.max_receive_message_length", -1),
    ]
    if tls is None:
        return own_channel(target, options)
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return own_channel(target, options, tls.credentials())
