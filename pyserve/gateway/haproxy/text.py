"""The configuration as text: what holds everywhere, and which request goes where. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator

from pyserve.gateway.haproxy.backends import INGRESS, backend_lines, ingress_lines
from pyserve.gateway.haproxy.options import HaproxyOptions, IngressPlace
from pyserve.gateway.haproxy.targets import Backend, backends_of
from pyserve.gateway.haproxy.words import FOREVER, seconds, word
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
    for prefix in sorted(leads_to, key=lambda each: (-each.count("/"), -len(each), each)):
        if prefix == "/":
            continue
        below = f"{{ path {word(prefix)} }} || {{ path_beg {word(f'{prefix}/')} }}"
        yield f"use_backend {leads_to[prefix]} if {below}"
    if "/" in leads_to:
        yield f"use_backend {leads_to['/']} if {{ path_beg / }}"
