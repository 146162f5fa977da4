"""TLS credentials: ours for servers, grpc's own for channels.

Only this module looks into grpc's credentials, which have no public accessors.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from pyserve.bridge import rust


@dataclass(frozen=True)
class ServerCredentials(grpc.ServerCredentials):
    """Certificates of a server; made by ``ssl_server_credentials``."""

    pairs: tuple[tuple[bytes, bytes], ...]
    root_certificates: bytes | None
    require_client_auth: bool


@dataclass(frozen=True)
class LiveServerCredentials(grpc.ServerCredentials):
    """Settings that somebody exchanges while servers use them."""

    native: rust.ServerTls


@dataclass(frozen=True)
class ChannelTls:
    """The contents of ``grpc.ChannelCredentials``: certificates, and credentials of every call.

    With ``native`` the certificates are in that object, where they can be replaced.
    """

    root_certificates: bytes | None
    private_key: bytes | None
    certificate_chain: bytes | None
    call_credentials: tuple[Any, ...]
    native: rust.ClientTls | None = None


def ssl_server_credentials(
    private_key_certificate_chain_pairs: Sequence[tuple[bytes, bytes]],
    root_certificates: bytes | None = None,
    require_client_auth: bool = False,
) -> ServerCredentials:
    """Make TLS credentials of a server, with the signature of ``grpc.ssl_server_credentials``.

    Args:
        private_key_certificate_chain_pairs: PEM of key and chain; the first fitting one is used.
        root_certificates: PEM of the authorities that client certificates must come from.
        require_client_auth: Refuse clients without a certificate.

    Raises:
        ValueError: There is no pair, or client certificates are required without roots.
    """
    if not private_key_certificate_chain_pairs:
        raise ValueError("At least one private key-certificate chain pair is required!")
    if require_client_auth and root_certificates is None:
        raise ValueError("Illegal to require client auth without providing root certificates!")
    pairs = tuple((bytes(key), bytes(chain)) for key, chain in private_key_certificate_chain_pairs)
    return ServerCredentials(pairs, root_certificates, require_client_auth)


def server_tls(credentials: object, *, http1: bool = False) -> rust.ServerTls:
    """Return the native form of server credentials.

    Args:
        credentials: Made by ``ssl_server_credentials``.
        http1: Offer HTTP/1.1 besides HTTP/2. Native credentials have decided it themselves.

    Raises:
        TypeError: They were not made by ``pyserve.aio.ssl_server_credentials``.
        ValueError: The certificates or keys cannot be read.
    """
    if isinstance(credentials, LiveServerCredentials):
        return credentials.native
    if not isinstance(credentials, ServerCredentials):
        raise TypeError(
            "add_secure_port needs credentials of pyserve.aio.ssl_server_credentials, not "
            f"{type(credentials).__module__}.{type(credentials).__qualname__}: grpc's own keep "
            "their certificates inside the C library, where nothing else can read them"
        )
    return rust.ServerTls(
        credentials.pairs,
        credentials.root_certificates,
        credentials.require_client_auth,
        http1=http1,
    )


def read_channel_credentials(credentials: grpc.ChannelCredentials) -> ChannelTls:
    """Read what ``grpc.ssl_channel_credentials`` (and composites of it) were made from.

    Raises:
        TypeError: They are of another kind (ALTS, local, Google's, xDS).
    """
    inner: Any = vars(credentials)["_credentials"]
    call_credentials: tuple[Any, ...] = ()
    while hasattr(inner, "_channel_credentials"):
        call_credentials = (*inner._call_credentialses, *call_credentials)
        inner = inner._channel_credentials
    if not hasattr(inner, "_pem_root_certificates"):
        raise TypeError(
            "secure_channel takes credentials of grpc.ssl_channel_credentials, also composed "
            f"with call credentials, not {type(inner).__name__}"
        )
    return ChannelTls(
        inner._pem_root_certificates,
        inner._private_key,
        inner._certificate_chain,
        call_credentials,
    )


def read_call_credentials(credentials: grpc.CallCredentials) -> tuple[Any, ...]:
    """Return the metadata plugins inside ``credentials``, outermost first.

    Raises:
        TypeError: They do not come from a metadata plugin.
    """
    return flatten_plugins(vars(credentials)["_credentials"])


def flatten_plugins(inner: Any) -> tuple[Any, ...]:
    """Return the plugins of (possibly composite) call credentials.

    Raises:
        TypeError: They do not come from a metadata plugin.
    """
    if hasattr(inner, "_metadata_plugin"):
        return (inner._metadata_plugin,)
    if hasattr(inner, "_call_credentialses"):
        return tuple(plugin for one in inner._call_credentialses for plugin in flatten_plugins(one))
    raise TypeError(
        "credentials of a call must come from grpc.metadata_call_credentials, "
        f"grpc.access_token_call_credentials or a composite of them, not {type(inner).__name__}"
    )


# Asks the metadata plugins of call credentials what to send along.

_INSECURE = "Call credentials are only valid on secure channels"


@dataclass(frozen=True)
class CallCredentials:
    """The call credentials of a channel.

    Attributes:
        plugins: Raw credentials that came with the channel's own.
        host: The name that plugins receive; ``None`` on channels without TLS, which must not
            carry credentials.
    """

    plugins: tuple[Any, ...]
    host: str | None

    def check(self, credentials: grpc.CallCredentials | None) -> None:
        """Refuse credentials that would go over a channel without TLS.

        Raises:
            grpc.aio.UsageError: They would.
        """
        if credentials is not None and self.host is None:
            raise grpc.aio.UsageError(_INSECURE)

    async def add_to(self, details: grpc.aio.ClientCallDetails) -> grpc.aio.Metadata | None:
        """Return the metadata of ``details`` with what its credentials add.

        Raises:
            grpc.aio.AioRpcError: A plugin failed.
            grpc.aio.UsageError: The channel has no TLS.
        """
        plugins = tuple(one for raw in self.plugins for one in flatten_plugins(raw))
        if details.credentials is not None:
            plugins += read_call_credentials(details.credentials)
        metadata = details.metadata
        if not plugins:
            return metadata
        if self.host is None:
            raise grpc.aio.UsageError(_INSECURE)
        text = method_text(details)
        added = [pair for plugin in plugins for pair in await _ask(plugin, self.host, text)]
        return grpc.aio.Metadata(*(metadata or ()), *added)


def method_text(details: grpc.aio.ClientCallDetails) -> str:
    """Return the method of ``details``, which grpc.aio gives as bytes and declares as str."""
    method: Any = details.method
    return method.decode() if isinstance(method, bytes) else str(method)


async def _ask(plugin: Any, host: str, path: str) -> list[tuple[str, str | bytes]]:
    """Return the pairs of one plugin, which may block and may answer from any thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(metadata: Any, code: int, details: bytes | None) -> None:
        if answer.done():
            return
        if code == 0:
            answer.set_result(list(metadata or ()))
        else:
            text = (details or b"").decode(errors="replace")
            answer.set_exception(
                _error(
                    grpc.StatusCode.UNAVAILABLE,
                    f"Getting metadata from plugin failed with error: {text}",
                )
            )

    def callback(metadata: Any, code: int, details: bytes | None) -> None:
        loop.call_soon_threadsafe(settle, metadata, code, details)

    service, _, method = path.rpartition("/")
    await asyncio.to_thread(plugin, f"https://{host}{service}", method, callback)
    return await answer  # type: ignore[no-any-return]


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details, debug_error_string=details
    )
