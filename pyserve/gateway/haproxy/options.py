"""The options from which a configuration of HAProxy is made, besides the views of the mesh."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pyserve.config.ingress import IngressSettings


@dataclass(frozen=True, kw_only=True)
class ServerTls:
    """How HAProxy proves who it is to the mesh, and the mesh to HAProxy.

    Attributes:
        ca_file: roots of the certificates in the mesh.
        pem_file: a certificate and its key in one file; None: it shows none.
        server_name: a DNS name that the certificates must carry; "": any that the roots signed.
    """

    ca_file: Path
    pem_file: Path | None = None
    server_name: str = ""


@dataclass(frozen=True, kw_only=True)
class HaproxyOptions:
    """Where HAProxy listens, and what holds for its clients and servers.

    Attributes:
        binds: ``host:port`` each, or ``*:port``.
        bind_pem: a certificate and its key in one file; None: clients speak in plain text.
        ingress: limits and times, those of the ingress.
        tls: for servers that speak TLS; None: none can be reached.
        direct_speaks_tls: the ports of replicas take certificates.
        stats_socket: path of a socket for HAProxy's own commands; None: only its master has one.
    """

    binds: tuple[str, ...] = ("127.0.0.1:8080",)
    bind_pem: Path | None = None
    ingress: IngressSettings = field(default_factory=IngressSettings)
    tls: ServerTls | None = None
    direct_speaks_tls: bool = False
    stats_socket: Path | None = None


@dataclass(frozen=True, kw_only=True)
class IngressPlace:
    """The ingress that HAProxy falls back to.

    Attributes:
        addresses: ``host:port`` each, as HAProxy reaches them; (): there is none.
        speaks_tls: whether it does.
    """

    addresses: tuple[str, ...] = ()
    speaks_tls: bool = False
