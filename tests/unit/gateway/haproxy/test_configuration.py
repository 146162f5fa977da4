"""What stands in the configuration, and what HAProxy says about it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from pyserve.config.ingress import IngressSettings
from pyserve.gateway.haproxy.targets import (
    HaproxyOptions,
    IngressPlace,
    ServerTls,
    name,
    seconds,
    word,
)
from pyserve.gateway.haproxy.text import configuration
from pyserve.wire.v1 import mesh_pb2
from tests.support import haproxy
from tests.support.authority import Authority
from tests.unit.gateway.haproxy.fleet import replica, view

PLACE = IngressPlace(addresses=("127.0.0.1:8000",))
_NO_HAPROXY = haproxy.why_not()
with_haproxy = [
    pytest.mark.external,
    pytest.mark.slow,
    pytest.mark.skipif(_NO_HAPROXY is not None, reason=_NO_HAPROXY or ""),
]


def text(
    *views: mesh_pb2.DeploymentView,
    place: IngressPlace = PLACE,
    options: HaproxyOptions | None = None,
    **settings: object,
) -> str:
    options = options or HaproxyOptions(ingress=replace(IngressSettings(), **settings))  # type: ignore[arg-type]
    return configuration(views, place, options)


def section(whole: str, title: str) -> list[str]:
    (found,) = [each for each in whole.split("\n\n") if each.startswith(f"{title}\n")]
    return [line.strip() for line in found.splitlines()[1:]]


def rules(whole: str) -> list[str]:
    lines = section(whole, "frontend pyserve")
    return [line.removeprefix("use_backend ") for line in lines if "use_backend" in line]


def test_without_ports_for_balancers_everything_goes_to_the_ingress() -> None:
    found = text(
        view(services=["pkg.Echo"], prefixes=["/shop"], replicas=[replica(1, direct=False)])
    )

    assert {"pyserve-ingress"} == {rule.split()[0] for rule in rules(found)}
    assert any(
        line.startswith("server ingress0 127.0.0.1:8000 ")
        for line in section(found, "backend pyserve-ingress")
    )
    assert 1 == found.count("\nbackend ")


@pytest.mark.parity("S-60")
def test_grpc_goes_to_one_port_of_replicas_and_other_protocols_to_the_other() -> None:
    found = text(view(services=["pkg.Echo"], replicas=[replica(1), replica(2)]))

    assert "shop:Echo:grpc if is_grpc { path_beg /pkg.Echo/ }" in rules(found)
    assert "shop:Echo:http if !is_grpc { path_beg /pkg.Echo/ }" in rules(found)
    servers = [each for each in section(found, "backend shop:Echo:grpc") if "observe" in each]
    assert ["127.0.0.1:40001", "127.0.0.1:40002"] == [each.split()[2] for each in servers]
    # Where health is asked for is the other port.
    assert all(" port 3000" in each for each in servers)
    servers = [each for each in section(found, "backend shop:Echo:http") if "observe" in each]
    assert ["127.0.0.1:30001", "127.0.0.1:30002"] == [each.split()[2] for each in servers]


def test_calls_in_a_replica_are_bounded_and_so_are_those_that_wait() -> None:
    found = text(view(services=["pkg.Echo"], prefixes=["/"], replicas=[replica(1)]))

    for backend in ("shop:Echo:grpc", "shop:Echo:http"):
        lines = section(found, f"backend {backend}")
        assert any(line.startswith("server Echo:1 ") and "maxconn 3" in line for line in lines)
        assert any("{ queue ge 7 } { be_conn_free eq 0 }" in line for line in lines)
    assert any("deny_status 429" in line for line in section(found, "backend shop:Echo:http"))
    assert any("grpc-status 8" in line for line in section(found, "backend shop:Echo:grpc"))


def test_the_longest_prefix_comes_first_and_whole_segments_count() -> None:
    found = rules(
        text(
            view("Root", prefixes=["/"], replicas=[replica(1)]),
            view("Cart", prefixes=["/shop/cart"], replicas=[replica(2)]),
            view("Shop", prefixes=["/shop"], replicas=[replica(3)]),
        )
    )

    order = [rule.split()[0] for rule in found if "is_grpc" not in rule]
    shop, cart = name("shop", "Shop", "http", "/shop"), name("shop", "Cart", "http", "/shop/cart")
    assert ["pyserve-ingress", cart, shop, "shop:Root:http"] == order
    assert f"{shop} if {{ path /shop }} || {{ path_beg /shop/ }}" in found


def test_a_prefix_without_direct_replicas_is_not_taken_by_a_shorter_one() -> None:
    found = rules(
        text(
            view("Root", prefixes=["/"], replicas=[replica(1)]),
            view("Cart", prefixes=["/shop"]),
            view("Other", services=["pkg.Other"]),
        )
    )

    assert "pyserve-ingress if { path /shop } || { path_beg /shop/ }" in found
    assert "pyserve-ingress if { path_beg /pkg.Other/ }" in found
    assert "pyserve-ingress if { path_beg /-/ }" == found[0]
    assert "shop:Root:http if { path_beg / }" == found[-1]


def test_replicas_see_paths_without_the_prefix_of_the_application_but_with_that_of_the_class() -> (
    None
):
    found = text(view(prefixes=["/shop"], class_prefixes=["/v2/models/m"], replicas=[replica(1)]))

    lines = section(found, f"backend {name('shop', 'Echo', 'http', '/shop')}")
    assert "http-request set-path /%[path,bytes(6)]" in lines
    assert "http-request set-header x-forwarded-prefix /shop" in lines
    assert not any("set-path" in each for each in section(found, "backend shop:Echo:http"))
    # All else below it is about all models, which the ingress knows.
    assert "pyserve-ingress if { path /v2 } || { path_beg /v2/ }" in rules(found)


def test_calls_fall_back_to_the_ingress_where_no_replica_is_left() -> None:
    found = text(view(services=["pkg.Echo"], replicas=[replica(1)]))
    last = section(found, "backend shop:Echo:grpc")[-1]
    assert last.startswith("server ingress0 127.0.0.1:8000 ")
    assert last.endswith(" backup")


@pytest.mark.parametrize(
    "views",
    [
        pytest.param(
            [
                view(application="a", services=["pkg.Echo"], replicas=[replica(1)]),
                view(application="b", services=["pkg.Echo"], replicas=[replica(2)]),
            ],
            id="service of two applications",
        ),
        pytest.param(
            [
                view(
                    services=["pkg.Echo"],
                    replicas=[replica(1)],
                    shares=[mesh_pb2.Share(weight=0.1)],
                )
            ],
            id="shared calls",
        ),
    ],
)
def test_what_only_the_ingress_can_do_goes_there(views: list[mesh_pb2.DeploymentView]) -> None:
    assert {"pyserve-ingress"} == {rule.split()[0] for rule in rules(text(*views))}


def test_plain_http_goes_to_the_ingress_as_soon_as_a_service_has_paths_of_its_own() -> None:
    annotated = descriptor_pb2.FileDescriptorProto(name="a.proto")
    options = annotated.service.add(name="Shelf").method.add(name="Get").options
    # google.api.http = {get: "/v1/shelf"}, whose type is not known here.
    rule = b"\x12\x09/v1/shelf"
    options.MergeFromString(b"\x82\xd3\xe4\x93\x02" + bytes([len(rule)]) + rule)
    shelf = view("Shelf", services=["Shelf"], files=[annotated.SerializeToString()])

    found = rules(text(view(prefixes=["/"], replicas=[replica(1)]), shelf))

    assert "pyserve-ingress if { path_beg / }" == found[-1]


def test_limits_and_times_are_those_of_the_ingress() -> None:
    found = text(
        connections_max=77,
        io_threads=3,
        client_timeout_s=10.0,
        server_timeout_s=20.0,
        connect_timeout_s=0.5,
        hard_stop_after_s=7.0,
        header_timeout_s=4.0,
        streams_max=99,
        body_bytes_max=1234,
    )

    assert "maxconn 77" in section(found, "frontend pyserve")
    assert {"nbthread 3", "hard-stop-after 7000ms", "tune.h2.max-concurrent-streams 99"} <= set(
        section(found, "global")
    )
    assert {
        "timeout client 10000ms",
        "timeout server 20000ms",
        "timeout connect 500ms",
        "timeout http-request 4000ms",
        "timeout http-keep-alive 10000ms",
    } <= set(section(found, "defaults"))
    assert any("413" in each and "gt 1234" in each for each in section(found, "frontend pyserve"))


def test_calls_without_a_time_limit_get_that_of_their_deployment() -> None:
    """Replicas that are reached directly do not know it: it is the ingress's to set."""
    given = view(services=["pkg.Echo"], prefixes=["/"], replicas=[replica(1)])
    given.request_timeout_s = 1.5
    for found in (text(given, request_timeout_s=9.0), text(given)):
        assert (
            "http-request set-header x-request-timeout-seconds 1.500 "
            "unless { req.hdr(x-request-timeout-seconds) -m found }"
        ) in section(found, "backend shop:Echo:http")
        assert (
            "http-request set-header grpc-timeout 1500m unless { req.hdr(grpc-timeout) -m found }"
        ) in section(found, "backend shop:Echo:grpc")
        assert "timeout queue 1500ms" in section(found, "backend shop:Echo:grpc")
    given.request_timeout_s = 0.0
    assert "grpc-timeout 9000m " in text(given, request_timeout_s=9.0), "that of the mesh"
    assert "grpc-timeout" not in text(given)


def test_nothing_is_repeated_that_may_have_started() -> None:
    found = text(view(services=["pkg.Echo"], replicas=[replica(1)]))
    assert ["retry-on conn-failure"] == re.findall(r"retry-on .*", found)


def test_only_trusted_proxies_say_who_a_client_is() -> None:
    nobody = section(text(), "frontend pyserve")
    assert "http-request del-header x-forwarded-for" in nobody
    assert "http-request add-header x-forwarded-for %[src]" in nobody
    some = section(text(trusted_proxies=("10.0.0.0/8", "fd00::/8")), "frontend pyserve")
    assert "acl from_proxy src 10.0.0.0/8 fd00::/8" in some
    assert "http-request del-header forwarded unless from_proxy" in some


def test_the_proxy_protocol_is_spoken_where_the_mesh_reads_it() -> None:
    found = text(
        view(services=["pkg.Echo"], replicas=[replica(1)]),
        trusted_proxies=("10.0.0.0/8",),
        proxy_protocol=True,
    )
    servers = [each for each in found.splitlines() if each.strip().startswith("server ")]
    assert servers
    assert all("send-proxy-v2 check-send-proxy" in each for each in servers)


def test_a_mesh_with_tls_needs_roots() -> None:
    with pytest.raises(ValueError, match="8000 speaks TLS, and nothing says which roots"):
        text(place=replace(PLACE, speaks_tls=True))


@pytest.mark.parametrize("odd", ["", "a\0b"])
def test_what_no_argument_can_be_is_refused(odd: str) -> None:
    with pytest.raises(ValueError, match="cannot be an argument"):
        word(odd)


def test_odd_characters_are_escaped() -> None:
    assert r"/it\x27s\x20a\x23\x0aserver" == word("/it's a#\nserver")
    assert r"\xc3\xa9" == word("é")


def test_names_of_different_things_differ() -> None:
    assert "Echo:k3f2x" == name("Echo#k3f2x")
    assert 4 == len({name("a b"), name("a_b"), name("a\nb"), name("a", "b")})
    assert re.fullmatch(r"[A-Za-z0-9_.:\-]+", name("é {}\n'\"", "#"))


@pytest.mark.parametrize(
    ("time_s", "written"), [(0.0001, "1ms"), (1.5, "1500ms"), (1e9, "2073600000ms")]
)
def test_times_are_what_haproxy_can_keep(time_s: float, written: str) -> None:
    assert written == seconds(time_s)


_ODD = [
    "/it's", "/a;b&(c)", "/a%20b", "/$HOME", '/"quoted"', "/a b", "/back\\slash", "/hash#", "/{x}",
    "/line\nbackend evil", "/größe", "/a,b", "/-f", "/!",
]  # fmt: skip


class TestHaproxyItself:
    pytestmark = with_haproxy

    def test_accepts_names_with_any_characters(self, tmp_path: Path) -> None:
        odd = [
            view(
                f"D{each}",
                application=f"app {each}",
                services=[f"pkg.S{each}"],
                prefixes=[each],
                replicas=[replica(index, f"R{each}")],
            )
            for index, each in enumerate(_ODD, 1)
        ]
        config = tmp_path / "haproxy.cfg"
        config.write_text(text(*odd, view("Root", prefixes=["/"], replicas=[replica(99)])))

        assert "" == haproxy.complaints(config)
        assert "backend evil" not in config.read_text().splitlines()

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"trusted_proxies": ("10.0.0.0/8", "fd00::/8"), "proxy_protocol": True},
            {"trusted_proxies": ("0.0.0.0/0",), "body_bytes_max": 1},
            {"io_threads": 1, "connections_max": 1, "streams_max": 1, "header_bytes_max": 1},
            {"request_timeout_s": 0.5, "server_timeout_s": 1e9, "hard_stop_after_s": 0.0},
        ],
    )
    def test_accepts_all_settings(self, tmp_path: Path, settings: dict[str, Any]) -> None:
        config = tmp_path / "haproxy.cfg"
        config.write_text(
            text(view(services=["a.B"], prefixes=["/s"], replicas=[replica(1)]), **settings)
        )
        assert "" == haproxy.complaints(config)

    def test_accepts_an_empty_mesh_without_an_ingress(self, tmp_path: Path) -> None:
        config = tmp_path / "haproxy.cfg"
        config.write_text(text(place=IngressPlace()))
        assert "" == haproxy.complaints(config)

    def test_accepts_certificates(self, tmp_path: Path) -> None:
        root = Authority()
        leaf = root.issue("localhost")
        pem, roots = tmp_path / "both of them.pem", tmp_path / "roots.pem"
        pem.write_bytes(leaf.chain + leaf.key)
        roots.write_bytes(root.certificate)
        options = HaproxyOptions(
            binds=("127.0.0.1:8443", "[::1]:8443", "*:8444"),
            bind_pem=pem,
            tls=ServerTls(ca_file=roots, pem_file=pem, server_name="localhost"),
            direct_speaks_tls=True,
            stats_socket=tmp_path / "stats.sock",
        )
        config = tmp_path / "haproxy.cfg"
        place = replace(PLACE, speaks_tls=True)
        config.write_text(
            text(view(services=["a.B"], replicas=[replica(1)]), place=place, options=options)
        )
        assert "" == haproxy.complaints(config)
