"""The sections of HAProxy's configuration that hold servers. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pyserve.gateway.haproxy.options import HaproxyOptions, IngressPlace
from pyserve.gateway.haproxy.targets import Backend, Target
from pyserve.gateway.haproxy.words import FOREVER, seconds, word

INGRESS = "pyserve-ingress"
"""The backend of all that does not go to replicas themselves."""

# A connection that fails is noticed without any check.
_PASSIVE = "observe layer4 error-limit 1 on-error mark-down"


def ingress_lines(place: IngressPlace, options: HaproxyOptions) -> Iterator[str]:
    """Yield the lines of the backend with the ingress.

    Raises:
        ValueError: it speaks TLS, and the options do not say how.
    """
    yield "balance leastconn"
    yield from _health()
    for index, address in enumerate(place.addresses):
        yield f"server ingress{index} {_server(address, options, place.speaks_tls)}"
    if not place.addresses:
        yield "http-request deny deny_status 503"


def backend_lines(backend: Backend, place: IngressPlace, options: HaproxyOptions) -> Iterator[str]:
    """Yield the lines of a backend with replicas.

    Raises:
        ValueError: they speak TLS, and the options do not say how.
    """
    limit_s = backend.request_timeout_s or options.ingress.request_timeout_s
    yield f"# {backend.title}"
    yield "balance leastconn"
    yield f"timeout queue {FOREVER if limit_s is None else seconds(limit_s)}"
    yield from _health()
    if limit_s is not None:
        yield from _time_limit(limit_s, takes_grpc=backend.takes_grpc)
    # Counted for all servers; what finds a free place does not wait.
    full = f"{{ queue ge {backend.queue_max} }} {{ be_conn_free eq 0 }}"
    if backend.takes_grpc:
        yield (
            "http-request return status 200 hdr grpc-status 8 "
            f'hdr grpc-message "too many calls wait for {backend.title}" if {full}'
        )
        yield (
            "http-after-response set-header content-type application/grpc "
            "if { res.hdr(grpc-status) -m found }"
        )
    else:
        yield f"http-request deny deny_status {backend.queue_full_status} if {full}"
    if backend.stripped:
        # Of the value of a header a % begins an expression.
        prefix = word(backend.stripped.replace("%", "%%"))
        yield f"http-request set-header x-forwarded-prefix {prefix}"
        yield f"http-request set-path /%[path,bytes({len(backend.stripped) + 1})]"
    for target in backend.targets:
        yield f"server {target.name} {_replica(target, options)}"
    if not backend.stripped:
        # Where no replica is left the ingress lets calls wait for the next one.
        for index, address in enumerate(place.addresses):
            server = _server(address, options, place.speaks_tls)
            yield f"server ingress{index} {server} backup"


def _time_limit(limit_s: float, *, takes_grpc: bool) -> Iterator[str]:
    """Yield what gives requests a limit that bring none: replicas leave that to the ingress."""
    header, value = "x-request-timeout-seconds", f"{max(limit_s, 0.001):.3f}"
    if takes_grpc:
        # At most eight digits, of thousandths as long as that is enough.
        thousandths = max(1, round(limit_s * 1000))
        value = f"{thousandths}m" if thousandths < 10**8 else f"{round(limit_s)}S"
        header = "grpc-timeout"
    yield f"http-request set-header {header} {value} unless {{ req.hdr({header}) -m found }}"


def _health() -> Iterator[str]:
    yield "option httpchk"
    yield "http-check send meth GET uri /-/healthz ver HTTP/1.1 hdr host pyserve"
    yield "http-check expect status 200"


def _replica(target: Target, options: HaproxyOptions) -> str:
    words = [_server(target.address, options, options.direct_speaks_tls), _PASSIVE]
    if target.health != target.address:
        words.append(f"port {target.health.rpartition(':')[2]}")
    if target.calls_max:
        words.append(f"maxconn {target.calls_max}")
    return " ".join(words)


def _server(address: str, options: HaproxyOptions, speaks_tls: bool) -> str:
    # An HTTP/2 server says before it closes a connection which calls it will still answer, so that
    # none is lost. WebSockets use HTTP/1.1 where no TLS handshake (ALPN) could refuse that.
    plain = "proto h2 check-proto h2 ws h1"
    words = [word(address), _tls(address, options) if speaks_tls else plain]
    if options.ingress.proxy_protocol:
        words.append("send-proxy-v2 check-send-proxy")
    return " ".join(words)


def _tls(address: str, options: HaproxyOptions) -> str:
    tls = options.tls
    if tls is None:
        raise ValueError(f"{address} speaks TLS, and nothing says which roots to trust")
    words = [
        # Without `proto`: HAProxy 2.6 then waits in vain for answers to its checks.
        "ssl alpn h2 check-alpn h2 verify required",
        f"ca-file {word(str(tls.ca_file))}",
    ]
    if tls.pem_file is not None:
        words.append(f"crt {word(str(tls.pem_file))}")
    if tls.server_name:
        host = word(tls.server_name)
        words.append(f"sni str({host}) verifyhost {host} check-sni {host}")
    return " ".join(words)
