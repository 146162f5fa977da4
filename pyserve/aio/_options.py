"""Reads grpc channel arguments into typed settings; unknown ones are logged and left out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from pyserve.aio._metadata import CLIENT_METADATA_BYTES
from pyserve.aio._service_config import ServiceConfig, read_service_config, without_retries
from pyserve.bridge import rust
from pyserve.config.proxies import check_networks
from pyserve.errors import Abort
from pyserve.version import version

if TYPE_CHECKING:
    from pyserve.aio._http import HttpHandler
    from pyserve.bridge import CallStarter

_LOGGER = logging.getLogger(__name__)

ChannelArguments = Sequence[tuple[str, Any]]

_MEBIBYTE = 1024 * 1024
_MESSAGE_BYTES_MAX = 4 * _MEBIBYTE  # grpc's default receive limit
# grpc-core's numbering of ``grpc.default_compression_algorithm`` and ``grpc.Compression``.
_COMPRESSION_BY_NUMBER = {0: rust.IDENTITY, 1: rust.DEFLATE, 2: rust.GZIP}
_ENABLED_COMPRESSIONS = "grpc.compression_enabled_algorithms_bitset"


@dataclass(frozen=True)
class Status:
    """How a call ends: code, text, and trailing metadata as pairs."""

    code: grpc.StatusCode
    details: str = ""
    trailing_metadata: Sequence[tuple[str, str | bytes]] = ()

    @classmethod
    def of_abort(cls, error: BaseException) -> Status | None:
        """Return the status that an ``Abort`` carries, ``None`` for other exceptions."""
        if isinstance(error, Abort):
            return cls(error.code, error.details, error.trailing_metadata)
        return None


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a server beyond grpc's own options; the defaults are those of a plain server.

    Attributes:
        development: Tell clients the type and text of unexpected exceptions.
        replica_id: Identity that a router's handshake must find; empty for plain servers.
        token: Mesh token that routers prove; empty trusts nobody.
        max_idle_streams: Bound of concurrent calls of methods with weight 0.
        weights: Weight at the admission gate by full method path; others count 1.
        codecs: By full method path, the content-subtypes of methods that are not protobuf's.
            Their messages have no limit where the caller is trusted.
        framed: By full method path, the handlers of calls that handles make, where they are
            others than everybody's.
        status_of: Gives the status of an exception that carries one, else ``None``. It also
            gets the context of the call.
        default_threads: Size of the pool of ``def`` handlers when the caller gave none.
        outlives_exits: SystemExit and KeyboardInterrupt that a handler raises fail its call, and
            do not end the loop as they do in grpc.aio.
        application, deployment: Of the current request of a handler.
        http: Answers plain HTTP requests; ``None`` takes none.
        http_weight: Of each of them, at the admission gate.
        call_token: Token that every call must carry as ``pyserve-token-bin``, except calls of
            routers that have proven ``token``. Without it a call ends UNAUTHENTICATED before its
            body is read. Empty: no token is required.
        on_turned_away: Called with path and peer of such a call, at most once a second.
        max_receive_message_bytes: By full method path, where it differs from the options.
        around_starts: Wraps what starts the calls of all kinds, on the loop. Context variables that
            it sets are those of their code. ``None``: nothing does.
        maps_shared_memory: Whether large bodies may come through memory that routers share.
    """

    development: bool = False
    replica_id: str = ""
    token: bytes = b""
    max_idle_streams: int = 1000
    weights: Mapping[str, int] = field(default_factory=dict)
    codecs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    framed: Mapping[str, grpc.RpcMethodHandler[Any, Any]] = field(default_factory=dict)
    status_of: Callable[[BaseException, Any], Status | None] | None = None
    default_threads: int = 32
    outlives_exits: bool = False
    application: str = ""
    deployment: str = ""
    http: HttpHandler | None = None
    http_weight: int = 1
    call_token: bytes = b""
    on_turned_away: Callable[[str, str], None] | None = None
    max_receive_message_bytes: Mapping[str, int] = field(default_factory=dict)
    around_starts: Callable[[CallStarter], CallStarter] | None = None
    maps_shared_memory: bool = True


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The grpc options of a server that have a meaning here."""

    max_receive_message_bytes: int = _MESSAGE_BYTES_MAX
    max_send_message_bytes: int = -1
    max_metadata_bytes: int = 16384
    client_metadata_bytes: int = CLIENT_METADATA_BYTES  # taken by clients, with a status's text
    default_compression: int = rust.IDENTITY
    enabled_compressions: frozenset[int] | None = None  # None: all
    keepalive_time_s: float | None = None
    keepalive_timeout_s: float = 20.0
    max_connection_age_s: float | None = None
    max_connection_grace_s: float | None = None
    max_connection_idle_s: float | None = None
    max_concurrent_streams: int = 4096
    idle_bytes_max: int = 48 * _MEBIBYTE
    trusted_proxies: tuple[str, ...] = ()
    proxy_protocol: bool = False
    reuse_port: bool = False
    doors: bool = False

    def compressions(self) -> list[int] | None:
        """Return the native numbers of those that are switched on; ``None``: all."""
        return None if self.enabled_compressions is None else sorted(self.enabled_compressions)


@dataclass(frozen=True, kw_only=True)
class ChannelOptions:
    """The grpc options of a channel that have a meaning here."""

    max_receive_message_bytes: int = _MESSAGE_BYTES_MAX
    max_send_message_bytes: int = -1
    default_compression: int = rust.IDENTITY
    enabled_compressions: frozenset[int] | None = None  # None: all
    keepalive_time_s: float | None = None
    keepalive_timeout_s: float = 20.0
    reconnect_backoff_initial_s: float = 1.0
    reconnect_backoff_max_s: float = 120.0
    authority: str | None = None
    user_agent: str = ""
    server_name: str | None = None
    service_config: ServiceConfig | None = None

    def compressions(self) -> list[int] | None:
        """As of ``ServerOptions``."""
        return None if self.enabled_compressions is None else sorted(self.enabled_compressions)


def _seconds(milliseconds: Any) -> float:
    return int(milliseconds) / 1000


def _seconds_or_never(milliseconds: Any) -> float | None:
    # INT_MAX is grpc's way to write "never".
    return None if int(milliseconds) >= 2**31 - 1 else _seconds(milliseconds)


def _bytes(mebibytes: Any) -> int:
    if int(mebibytes) < 0:
        raise ValueError("a number of MiB from 0")
    return int(mebibytes) * _MEBIBYTE


def _networks(text: Any) -> tuple[str, ...]:
    words = (word.strip() for word in str(text).split(","))
    return check_networks("pyserve.trusted_proxies", filter(None, words))


def _proxy_protocol(version: Any) -> bool:
    if version not in ("off", "v2"):
        raise ValueError("off or v2")
    return bool(version == "v2")


def _compression(number: Any) -> int:
    return _COMPRESSION_BY_NUMBER[int(number)]


def _compressions(bits: Any) -> frozenset[int]:
    known = _COMPRESSION_BY_NUMBER.items()
    # As in grpc messages may always be plain.
    return frozenset(native for bit, native in known if bit == 0 or int(bits) >> bit & 1)


_COMMON: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "grpc.max_receive_message_length": ("max_receive_message_bytes", int),
    "grpc.max_send_message_length": ("max_send_message_bytes", int),
    "grpc.keepalive_time_ms": ("keepalive_time_s", _seconds_or_never),
    "grpc.keepalive_timeout_ms": ("keepalive_timeout_s", _seconds),
    "grpc.default_compression_algorithm": ("default_compression", _compression),
    _ENABLED_COMPRESSIONS: ("enabled_compressions", _compressions),
}
_SERVER = _COMMON | {
    "grpc.max_metadata_size": ("max_metadata_bytes", int),
    "grpc.absolute_max_metadata_size": ("absolute_metadata_bytes", int),
    "grpc.max_connection_age_ms": ("max_connection_age_s", _seconds_or_never),
    "grpc.max_connection_age_grace_ms": ("max_connection_grace_s", _seconds_or_never),
    "grpc.max_connection_idle_ms": ("max_connection_idle_s", _seconds_or_never),
    "grpc.max_concurrent_streams": ("max_concurrent_streams", int),
    "grpc.so_reuseport": ("reuse_port", bool),
    "pyserve.client_metadata_bytes": ("client_metadata_bytes", int),
    "pyserve.doors": ("doors", bool),
    "pyserve.idle_connection_memory_mb": ("idle_bytes_max", _bytes),
    "pyserve.trusted_proxies": ("trusted_proxies", _networks),
    "pyserve.proxy_protocol": ("proxy_protocol", _proxy_protocol),
}
_CHANNEL = _COMMON | {
    "grpc.initial_reconnect_backoff_ms": ("reconnect_backoff_initial_s", _seconds),
    "grpc.max_reconnect_backoff_ms": ("reconnect_backoff_max_s", _seconds),
    "grpc.default_authority": ("authority", str),
    "grpc.primary_user_agent": ("user_agent_before", str),
    "grpc.secondary_user_agent": ("user_agent_after", str),
    "grpc.service_config": ("service_config", read_service_config),
    "grpc.enable_retries": ("retries", bool),
    "grpc.ssl_target_name_override": ("server_name", str),
}


def compression_number(compression: grpc.Compression | None) -> int | None:
    """Return the native number of a ``grpc.Compression``, ``None`` for ``None``."""
    return None if compression is None else _COMPRESSION_BY_NUMBER[int(compression)]


def _read(
    known: Mapping[str, tuple[str, Callable[[Any], Any]]],
    arguments: ChannelArguments,
    compression: grpc.Compression | None,
) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in arguments:
        if name not in known:
            _LOGGER.debug("option %s=%r has no meaning here and is ignored", name, value)
            continue
        target, convert = known[name]
        try:
            settings[target] = convert(value)
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(f"option {name}={value!r} is not valid: {error}") from error
    if compression is not None:
        settings["default_compression"] = compression_number(compression)
    enabled = settings.get("enabled_compressions")
    if enabled is not None and settings.get("default_compression", rust.IDENTITY) not in enabled:
        settings["default_compression"] = rust.IDENTITY
        _LOGGER.error(
            "%s switches the default compression off: messages go plain unless their call says "
            "otherwise",
            _ENABLED_COMPRESSIONS,
        )
    return settings


def read_server_options(
    arguments: ChannelArguments, compression: grpc.Compression | None
) -> ServerOptions:
    """Read the options of ``server()``.

    Both limits of metadata are read as grpc reads them: the larger one bounds what the server
    takes, and the soft one says what its clients take of a failure.

    Raises:
        ValueError: A known option has a value that cannot be read.
    """
    settings = _read(_SERVER, arguments, compression)
    asked = settings.get("max_metadata_bytes", 0)
    absolute = settings.pop("absolute_metadata_bytes", 0)
    # As in grpc, the soft limit is 80 % of the absolute one if only that is given. A server that
    # takes little may have clients that take what they do by default.
    of_clients = settings.get("client_metadata_bytes") or asked or absolute * 4 // 5
    settings["client_metadata_bytes"] = max(of_clients, CLIENT_METADATA_BYTES)
    if absolute > asked:
        settings["max_metadata_bytes"] = absolute
    return ServerOptions(**settings)


def read_channel_options(
    arguments: ChannelArguments, compression: grpc.Compression | None
) -> ChannelOptions:
    """Read the options of ``insecure_channel()`` and ``secure_channel()``.

    Raises:
        ValueError: A known option has a value that cannot be read.
    """
    settings = _read(_CHANNEL, arguments, compression)
    before, after = settings.pop("user_agent_before", ""), settings.pop("user_agent_after", "")
    agents = (before, f"grpc-python-pyserve/{version()}", after)
    settings["user_agent"] = " ".join(filter(None, agents))
    config = settings.get("service_config")
    if not settings.pop("retries", True) and config is not None:
        settings["service_config"] = without_retries(config)
    return ChannelOptions(**settings)
