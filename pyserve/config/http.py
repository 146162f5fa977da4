"""The options of a mesh's ingress, under Ray Serve's names."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import InitVar, dataclass

from pyserve.config.parts import Part
from pyserve.config.validation import (
    check_choice,
    check_flag,
    check_import_path,
    check_integer,
    check_seconds,
    check_text,
    refuse,
)
from pyserve.errors import OptionError

DEFAULT_HTTP_PORT = 8000
DEFAULT_GRPC_PORT = 9000
# The ingress answers below it itself, as Ray Serve's proxy does.
RESERVED_PREFIX = "/-"
_PORT_MAX = 65535

# What RFC 3986 allows in a path, segment by segment; none is empty.
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%\-]+)+\Z")


class RoutePrefix(enum.Enum):
    """The prefix of applications for which nobody asked for one."""

    DEFAULT = "/"

    @staticmethod
    def text(prefix: str | RoutePrefix | None) -> str:
        """Return the prefix as it is written; "" for none."""
        return prefix.value if isinstance(prefix, RoutePrefix) else prefix or ""


class ProxyLocation(enum.StrEnum):
    """Where ingresses run.

    A mesh on one machine has one ingress, in the process of its controller: ``EveryNode`` and
    ``HeadOnly`` are the same there.
    """

    EveryNode = "EveryNode"
    HeadOnly = "HeadOnly"
    Disabled = "Disabled"


class DeploymentMode(enum.StrEnum):
    """``ProxyLocation`` as older code of Ray Serve calls it, for ``HTTPOptions.location``."""

    NoServer = "NoServer"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"


def check_route_prefix(field: str, value: object) -> str:
    """Return ``value`` if an application may be reached below it.

    Raises:
        OptionError: it is no path, ends with a slash, or is reserved.
    """
    allowed = "'/' or a path such as '/shop/cart': it begins with a slash and ends without one"
    if value == "/":
        return "/"
    if not isinstance(value, str) or not _PATH.match(value):
        raise refuse(field, value, allowed, str)
    segments = value.split("/")
    if {".", ".."} & set(segments):
        raise refuse(field, value, f"{allowed}; no segment is '.' or '..'")
    if segments[1] == RESERVED_PREFIX.strip("/"):
        raise refuse(
            field, value, f"{allowed}; {RESERVED_PREFIX} is reserved for /-/healthz and /-/routes"
        )
    return value


@dataclass(frozen=True, kw_only=True)
class HTTPOptions(Part):
    """The ingress's side of plain HTTP; gRPC comes in at the same address.

    Attributes:
        host: Where it listens; ``None``: nowhere.
        port: 0 picks one, see ``status().addresses``.
        root_path: A prefix that a proxy in front has removed from the paths; applications see it
            as part of theirs (``root_path`` of ASGI).
        request_timeout_s: Time limit of requests for which neither the client nor the deployment
            says one; ``None``: as the environment says, by default none.
        keep_alive_timeout_s: How long a connection of HTTP/1.1 may wait for its next request;
            ``None``: as the environment says, by default 90.
        ssl_keyfile: PEM file of the private key; with ``ssl_certfile`` the ingress speaks TLS.
        ssl_certfile: PEM file of the certificate and its chain.
        ssl_keyfile_password: Not supported: keys are read unencrypted.
        ssl_ca_certs: PEM file of those who sign client certificates, which are required then.
        location: See ``ProxyLocation``.
        middlewares: Not supported here: the ingress runs no Python. An ASGI application adds
            them itself, ``app.add_middleware(...)``, or ``PYSERVE_HTTP_MIDDLEWARES`` names a
            function that returns them for all; they run in the replicas.
        num_cpus: Accepted as Ray Serve has it, where it has to be 0.
        root_url: Accepted as Ray Serve has it, without effect: nothing here makes absolute links.
    """

    host: str | None = "127.0.0.1"
    port: int = DEFAULT_HTTP_PORT
    root_path: str = ""
    request_timeout_s: float | None = None
    keep_alive_timeout_s: float | None = None
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile_password: str | None = None
    ssl_ca_certs: str | None = None
    location: ProxyLocation | str | None = None
    middlewares: Sequence[object] = ()
    num_cpus: InitVar[int] = 0
    root_url: InitVar[str] = ""

    def __post_init__(self, num_cpus: int, root_url: str) -> None:
        if num_cpus:
            raise refuse("http_options.num_cpus", num_cpus, "0: an ingress reserves no processors")
        if root_url:
            check_text("http_options.root_url", root_url)
        # Kept, so that the start can say that it changes nothing.
        object.__setattr__(self, "root_url", root_url)
        if self.host is not None:
            check_text("http_options.host", self.host, "the name or address of an interface")
        check_integer("http_options.port", self.port, minimum=0, maximum=_PORT_MAX)
        if self.root_path:
            check_root_path("http_options.root_path", self.root_path)
        self._check_times()
        self._check_certificates()
        if self.location is not None:
            object.__setattr__(
                self, "location", check_location("http_options.location", self.location)
            )
        if self.middlewares:
            raise OptionError(
                "http_options.middlewares cannot act: the ingress runs no Python. Give them to "
                "the ASGI application, app.add_middleware(...), or set PYSERVE_HTTP_MIDDLEWARES="
                "module:function, which returns a list of them for all plain HTTP of the mesh; "
                "they run in the replicas"
            )
        object.__setattr__(self, "middlewares", ())

    def _check_times(self) -> None:
        if self.request_timeout_s is not None:
            check_seconds("http_options.request_timeout_s", self.request_timeout_s)
        if self.keep_alive_timeout_s is not None:
            check_seconds(
                "http_options.keep_alive_timeout_s", self.keep_alive_timeout_s, exclusive=True
            )

    def _check_certificates(self) -> None:
        for name in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"):
            if (value := getattr(self, name)) is not None:
                check_text(f"http_options.{name}", value, "the path of a PEM file")
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise OptionError(
                "http_options has one of ssl_keyfile and ssl_certfile; TLS needs both"
            )
        if self.ssl_keyfile_password is not None:
            raise OptionError(
                "http_options.ssl_keyfile_password is not supported; decrypt the key with "
                "`openssl pkey` and let the file's mode protect it"
            )


@dataclass(frozen=True, kw_only=True)
class gRPCOptions(Part):  # noqa: N801  # Ray Serve's name.
    """The ingress's side of gRPC, where it is to have a port of its own.

    Every port of the ingress speaks HTTP and gRPC. Services whose generated servicer is a base of
    a deployment's class need no list.

    Attributes:
        port: Where the ingress listens too, on the host of the HTTP options; 0 picks one.
        grpc_servicer_functions: Import paths of generated functions,
            ``things_pb2_grpc.add_ThingsServicer_to_server``: their services are answered by the
            methods of the same names of every application's ingress deployment, which needs no
            base for that.
        request_timeout_s: As in ``HTTPOptions``. One ingress has one such limit: the smaller one.
        enable_reflection: ``True``: the ingress always answers reflection. An access rule can
            keep it from those who may not ask.
    """

    port: int = DEFAULT_GRPC_PORT
    grpc_servicer_functions: Sequence[str] = ()
    request_timeout_s: float | None = None
    enable_reflection: bool = True

    def __post_init__(self) -> None:
        if not check_flag("grpc_options.enable_reflection", self.enable_reflection):
            raise refuse(
                "grpc_options.enable_reflection",
                False,
                "True; deny its paths, /grpc.reflection.*, in the file of PYSERVE_ACCESS_FILE",
            )
        check_integer("grpc_options.port", self.port, minimum=0, maximum=_PORT_MAX)
        functions: object = self.grpc_servicer_functions
        if not isinstance(functions, list | tuple):
            raise refuse("grpc_options.grpc_servicer_functions", functions, "a list of texts", list)
        for path in functions:
            check_import_path("grpc_options.grpc_servicer_functions", path)
        object.__setattr__(self, "grpc_servicer_functions", tuple(functions))
        if self.request_timeout_s is not None:
            check_seconds("grpc_options.request_timeout_s", self.request_timeout_s)


def check_location(field: str, value: object) -> ProxyLocation:
    """Return the location of ingresses that ``value`` names."""
    text = value.value if isinstance(value, enum.Enum) else value
    # Ray Serve's older name for no ingress.
    text = "Disabled" if text == "NoServer" else text
    choices = [item.value for item in ProxyLocation]
    return ProxyLocation(check_choice(field, text, choices))


def check_root_path(field: str, value: object) -> str:
    """Return ``value`` if it may be the ``root_path`` of ASGI applications."""
    if not isinstance(value, str) or not _PATH.match(value):
        allowed = "a path such as '/gateway': it begins with a slash, ends without one"
        raise refuse(field, value, allowed, str)
    return value
