"""The configuration as text: what holds everywhere, and which request goes where. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator

from pyserve.gateway.haproxy.targets import (
    FOREVER,
    Backend,
    HaproxyOptions,
    IngressPlace,
    Target,
    backends_of,
    seconds,
    word,
)
from pyserve.gateway.inference import PREFIX as INFERENCE_PREFIX
from pyserve.wire.v1 import mesh_pb2

_HEAD = """\
# Written by `pyserve haproxy-config`, which overwrites it: for HAProxy 2.6 or later.
# Start it as `haproxy -W -S /run/pyserve-haproxy.sock,mode,600 -f THIS_FILE`."""
# HAProxy reserves part of its buffers for headers that it adds.
_REWRITE_BYTES = 1024
_BUFFER_BYTES_MIN = 16 * 1024


def configuration(
    views: Collection[mesh_pb2.DeploymentView], place: IngressPlace, options: HaproxyOptions
) -> str:
    """Return a whole configuration of HAProxy for the present state of the mesh.

    Args:
        views: of all deployments, as the registry sends them to routers.
        place: where the ingress is, for all that does not go to replicas themselves.
        options: the rest.

    Raises:
        ValueError: a name in the mesh or in the options cannot stand in a configuration.
    """
    backends = backends_of(views)
    sections = [
        [_HEAD],
        ["global", *_global(options)],
        ["defaults", *_defaults(options)],
        ["frontend pyserve", *_frontend(views, backends, options)],
        [f"backend {INGRESS}", *ingress_lines(place, options)],
        *([f"backend {each.name}", *backend_lines(each, place, options)] for each in backends),
    ]
    return "\n\n".join("\n    ".join(section) for section in sections) + "\n"


def _global(options: HaproxyOptions) -> Iterator[str]:
    ingress = options.ingress
    yield "log stderr format raw daemon notice"
    yield f"hard-stop-after {seconds(ingress.hard_stop_after_s)}"
    if ingress.io_threads is not None:
        yield f"nbthread {ingress.io_threads}"
    if options.stats_socket is not None:
        yield f"stats socket {word(str(options.stats_socket))} mode 600 level admin"
    buffer_bytes = max(_BUFFER_BYTES_MIN, ingress.header_bytes_max) + _REWRITE_BYTES
    yield f"tune.bufsize {buffer_bytes}"
    yield f"tune.maxrewrite {_REWRITE_BYTES}"
    yield f"tune.h2.max-concurrent-streams {ingress.streams_max}"


def _defaults(options: HaproxyOptions) -> Iterator[str]:
    ingress = options.ingress
    server_s = ingress.server_timeout_s
    idle_s = min(ingress.keep_alive_timeout_s, ingress.client_timeout_s)
    yield "mode http"
    yield "log global"
    yield "option dontlognull"
    # Streams are passed on as they come.
    yield "option http-no-delay"
    # A process that a reload replaces closes HTTP/1.1 connections together with an answer. If it
    # closed them between two requests, the second one could be lost.
    yield "option idle-close-on-response"
    yield f"timeout client {seconds(ingress.client_timeout_s)}"
    yield f"timeout http-request {seconds(ingress.header_timeout_s)}"
    yield f"timeout http-keep-alive {seconds(idle_s)}"
    yield f"timeout connect {seconds(ingress.connect_timeout_s)}"
    yield f"timeout server {FOREVER if server_s is None else seconds(server_s)}"
    yield f"timeout tunnel {seconds(ingress.client_timeout_s)}"
    # A sent request may have started, so another server is tried only if the connection failed.
    yield "retries 3"
    yield "retry-on conn-failure"
    yield "option redispatch 1"
    # Two answers in a row decide, and come more often while something changes.
    yield "default-server check inter 1s fastinter 250ms downinter 250ms fall 2 rise 2"


def _frontend(
    views: Collection[mesh_pb2.DeploymentView], backends: list[Backend], options: HaproxyOptions
) -> Iterator[str]:
    ingress = options.ingress
    for bind in options.binds:
        tls = "" if options.bind_pem is None else f" ssl crt {word(str(options.bind_pem))}"
        yield f"bind {word(bind)}{tls}{tls and ' alpn h2,http/1.1'}"
    yield f"maxconn {ingress.connections_max}"
    yield "acl is_grpc req.hdr(content-type) -i -m str application/grpc"
    yield "acl is_grpc req.hdr(content-type) -i -m beg application/grpc+ application/grpc;"
    yield from _forwarded(ingress.trusted_proxies)
    if ingress.body_bytes_max is not None:
        yield (
            "http-request deny deny_status 413 "
            f"if !is_grpc {{ req.hdr_val(content-length) gt {ingress.body_bytes_max} }}"
        )
    yield f"use_backend {INGRESS} if {{ path_beg /-/ }}"
    yield from _service_rules(views, backends)
    yield f"use_backend {INGRESS} if is_grpc"
    yield from _prefix_rules(views, backends)
    yield f"default_backend {INGRESS}"


def _forwarded(trusted: Iterable[str]) -> Iterator[str]:
    """Yield what says who the client is; of what came only the word of trusted proxies stays."""
    networks = [str(ipaddress.ip_network(each)) for each in trusted]
    unless_trusted, unless_forwarded, unless_proto = "", "", ""
    if networks:
        yield f"acl from_proxy src {' '.join(networks)}"
        yield "acl has_forwarded req.hdr(forwarded) -m found"
        yield "acl has_proto req.hdr(x-forwarded-proto) -m found"
        unless_trusted, unless_forwarded = " unless from_proxy", " unless has_forwarded"
        unless_proto = " unless has_forwarded or has_proto"
    for header in ("forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-prefix"):
        yield f"http-request del-header {header}{unless_trusted}"
    if networks:
        # A proxy in front writes one kind of header, and it goes on with that one.
        for family, source in (("0.0.0.0/0", '"%[src]"'), ("::/0", '"[%[src]]"')):
            yield (
                f"http-request set-header forwarded '%[req.fhdr(forwarded)], for={source}' "
                f"if has_forwarded {{ src {family} }}"
            )
    yield f"http-request add-header x-forwarded-for %[src]{unless_forwarded}"
    yield f"http-request set-header x-forwarded-proto %[ssl_fc,iif(https,http)]{unless_proto}"


def _service_rules(
    views: Collection[mesh_pb2.DeploymentView], backends: list[Backend]
) -> Iterator[str]:
    direct = {service for each in backends for service in each.services}
    for backend in backends:
        kind = "is_grpc" if backend.takes_grpc else "!is_grpc"
        for service in backend.services:
            yield f"use_backend {backend.name} if {kind} {{ path_beg {word(f'/{service}/')} }}"
    # JSON and Connect; gRPC goes there anyway.
    for service in sorted({each for view in views for each in view.services} - direct):
        yield f"use_backend {INGRESS} if {{ path_beg {word(f'/{service}/')} }}"


def _prefix_rules(
    views: Collection[mesh_pb2.DeploymentView], backends: list[Backend]
) -> Iterator[str]:
    """Yield rules for plain HTTP: the longest prefix first, by whole segments."""
    leads_to = {prefix: INGRESS for view in views for prefix in view.http_prefixes}
    if any(prefix.startswith(f"{INFERENCE_PREFIX}/") for prefix in leads_to):
        leads_to[INFERENCE_PREFIX] = INGRESS
    leads_to |= {prefix: each.name for each in backends for prefix in each.prefixes}
    # The ingress serves the APIs of language models, and passes other requests on.
    leads_to |= {view.llm_prefix: INGRESS for view in views if view.llm_prefix}
    for prefix in sorted(leads_to, key=lambda each: (-each.count("/"), -len(each), each)):
        if prefix == "/":
            continue
        below = f"{{ path {word(prefix)} }} || {{ path_beg {word(f'{prefix}/')} }}"
        yield f"use_backend {leads_to[prefix]} if {below}"
    if "/" in leads_to:
        yield f"use_backend {leads_to['/']} if {{ path_beg / }}"


# The sections of HAProxy's configuration that hold servers.

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
