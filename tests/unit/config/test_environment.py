"""The meaning of a process's environment variables."""

import re
from pathlib import Path

import pytest

from pyserve.config import (
    ConcurrencySettings,
    check_address,
    host_port,
    inherited_environment,
    older_names,
    read_settings,
    unknown_names,
)
from pyserve.errors import OptionError


def concurrency(**variables: str) -> ConcurrencySettings:
    return read_settings(variables).concurrency


@pytest.mark.parity("S-54")
def test_the_profile_changes_what_is_not_set_by_itself():
    assert ConcurrencySettings(user_code_in_separate_thread=True, loop_stall_s=0.1) == concurrency()
    assert not concurrency(PYSERVE_THROUGHPUT_OPTIMIZED="1").user_code_in_separate_thread
    assert concurrency(
        PYSERVE_THROUGHPUT_OPTIMIZED="1", PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD="1"
    ).user_code_in_separate_thread
    assert not concurrency(
        PYSERVE_THROUGHPUT_OPTIMIZED="0", PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD="0"
    ).user_code_in_separate_thread


@pytest.mark.parity("S-54")
def test_the_names_of_ray_serve_are_read_with_one_warning():
    variables = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}

    assert not concurrency(**variables).user_code_in_separate_thread
    assert [
        "RAY_SERVE_THROUGHPUT_OPTIMIZED is read as PYSERVE_THROUGHPUT_OPTIMIZED; "
        "write PYSERVE_THROUGHPUT_OPTIMIZED"
    ] == older_names(variables)


@pytest.mark.parity("S-54")
def test_our_own_name_wins_over_the_other():
    ours = "PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD"
    variables = {ours.replace("PYSERVE", "RAY_SERVE"): "1", ours: "0"}

    assert not concurrency(**variables).user_code_in_separate_thread
    (line,) = older_names(variables)
    assert line.endswith(f" is ignored, because {ours} is set")


def test_children_are_given_the_new_names_and_do_not_warn_again(monkeypatch):
    monkeypatch.setenv("RAY_SERVE_THROUGHPUT_OPTIMIZED", "1")
    environment = inherited_environment({})

    assert "1" == environment["PYSERVE_THROUGHPUT_OPTIMIZED"]
    assert [] == older_names(environment)
    assert not read_settings(environment).concurrency.user_code_in_separate_thread


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param(
            "RAY_SERVE_ENABLE_HA_PROXY",
            "`pyserve haproxy-config`",
            marks=pytest.mark.parity("S-60"),
        ),
        pytest.param(
            "RAY_SERVE_CONTROLLER_MAX_CONCURRENCY",
            "one stream",
            marks=pytest.mark.parity("S-83"),
        ),
        pytest.param(
            "RAY_SERVE_MAX_CACHED_HANDLES",
            "share the router",
            marks=pytest.mark.parity("S-84"),
        ),
    ],
)
def test_what_needs_no_setting_here_is_told_once(monkeypatch, name: str, why: str):
    (line,) = older_names({name: "1"})
    assert line.startswith(f"{name} has no effect: ")
    assert why in line
    monkeypatch.setenv(name, "1")
    assert [] == older_names(inherited_environment({}))


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_loop_of_the_router_is_accepted_and_changes_nothing(value: str):
    assert concurrency() == concurrency(PYSERVE_RUN_ROUTER_IN_SEPARATE_LOOP=value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PYSERVE_THROUGHPUT_OPTIMIZED", "yes", "1 for yes, 0 for no"),
        ("PYSERVE_RUN_ROUTER_IN_SEPARATE_LOOP", "2", "1 for yes, 0 for no"),
        ("PYSERVE_KEEP_FREED_MEMORY", "no", "1 for yes, 0 for no"),
        ("PYSERVE_LOOP_STALL_S", "-1", "a number of seconds of at least 0"),
        ("PYSERVE_LOOP_STALL_S", "nan", "a number of seconds of at least 0"),
        ("PYSERVE_LOOP_STALL_S", "soon", "a number of seconds of at least 0"),
        ("PYSERVE_SPARE_REPLICAS", "-1", "a whole number from 0 to 64"),
        ("PYSERVE_SPARE_REPLICAS", "65", "a whole number from 0 to 64"),
        ("PYSERVE_BIND_HOST", "not an address", "an address of this machine"),
        ("PYSERVE_HTTP_MIDDLEWARES", "nothing", "an import path, module:function"),
        ("PYSERVE_HTTP_MIDDLEWARES", "a.b:", "an import path, module:function"),
        ("PYSERVE_HTTP_MIDDLEWARES", "a/b.py:c", "an import path, module:function"),
        ("PYSERVE_ADVERTISE_HOST", "http://node-7", "a host name or an address without a port"),
        ("PYSERVE_ADVERTISE_HOST", "10.0.0.7:8000", "a host name or an address without a port"),
        ("PYSERVE_INGRESS_CORS_ORIGINS", "shop.example.com", "scheme, host and port"),
        ("PYSERVE_INGRESS_CORS_ORIGINS", "*,https://a.example/x", "scheme, host and port"),
        ("PYSERVE_TRUSTED_PROXIES", "proxy.example.com", "such as 10.0.0.0/8"),
        ("PYSERVE_TRUSTED_PROXIES", "10.0.0.1/8", "such as 10.0.0.0/8"),
        ("PYSERVE_TRUSTED_PROXIES", "10.0.0.0/33", "such as 10.0.0.0/8"),
        ("PYSERVE_TRUSTED_PROXIES", "10.0.0.0/255.0.0.0", "such as 10.0.0.0/8"),
        ("PYSERVE_TRUSTED_PROXIES", "127.0.0.1,::ffff:10.0.0.1", "such as 10.0.0.0/8"),
        ("PYSERVE_TRUSTED_PROXIES", "fe80::1%eth0", "such as 10.0.0.0/8"),
        ("PYSERVE_TRUSTED_PROXIES", "10.0.0.1:80", "such as 10.0.0.0/8"),
        ("PYSERVE_PROXY_PROTOCOL", "v1", "version 1 is not read"),
        ("PYSERVE_PROXY_PROTOCOL", "v2", "v2 with PYSERVE_TRUSTED_PROXIES"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(name: str, value: str, text: str):
    with pytest.raises(OptionError, match=f"{name}.*{text}"):
        concurrency(**{name: value})


@pytest.mark.parametrize(
    ("host", "dialled"),
    [
        ("node-7.example.com", "node-7.example.com:80"),
        ("10.0.0.7", "10.0.0.7:80"),
        ("::1", "[::1]:80"),
        ("[::1]", "[::1]:80"),
    ],
)
def test_a_host_to_advertise_need_not_be_known_here(host: str, dialled: str):
    found = read_settings({"PYSERVE_ADVERTISE_HOST": host}).node.advertise_host
    assert found is not None
    assert dialled == check_address("address", host_port(found, 80))


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_host_to_bind_may_have_brackets(host: str):
    assert "::1" == read_settings({"PYSERVE_BIND_HOST": host}).node.bind_host


@pytest.mark.parametrize("origins", ["*", "null", "https://a.example", "https://a:8443,http://b"])
def test_origins_of_pages_are_taken(origins: str):
    found = read_settings({"PYSERVE_INGRESS_CORS_ORIGINS": origins}).ingress.cors_origins
    assert tuple(origins.split(",")) == found


def test_proxies_are_networks():
    given = {"PYSERVE_TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.1,FD00::/8"}
    found = read_settings(given | {"PYSERVE_PROXY_PROTOCOL": "v2"}).ingress
    assert ("10.0.0.0/8", "192.0.2.1/32", "fd00::/8") == found.trusted_proxies
    assert found.proxy_protocol
    assert not read_settings(given).ingress.proxy_protocol


def test_names_that_nothing_reads_are_warned_of_with_the_one_that_was_meant():
    variables = {
        "PYSERVE_INGRES_PORT": "8001",
        "PYSERVE_TLS_CERTFILE": "/x",
        "PYSERVE_COFFEE": "1",
        "PYSERVE_ZONE": "a",
        "OTHER": "x",
    }
    assert [
        "PYSERVE_COFFEE is no setting, and is ignored",
        "PYSERVE_INGRES_PORT is no setting, and is ignored; did you mean PYSERVE_INGRESS_PORT?",
        "PYSERVE_TLS_CERTFILE is no setting, and is ignored; did you mean PYSERVE_TLS_CERT_FILE?",
    ] == unknown_names(variables)


def test_every_documented_name_is_known():
    pages = "".join(path.read_text() for path in Path("docs").rglob("*.md"))
    # Those of other tools, and beginnings of names that stand for several.
    names = set(re.findall(r"\bPYSERVE_[A-Z0-9_]*[A-Z0-9]\b(?!_?\*)", pages))
    assert 50 < len(names)
    assert [] == unknown_names(dict.fromkeys(names, ""))


def test_variables_of_kubernetes_services_are_not_mistakes():
    variables = {
        "PYSERVE_SERVICE_HOST": "10.0.0.1",
        "PYSERVE_WEB_SERVICE_PORT_HTTP": "80",
        "PYSERVE_PORT": "tcp://10.0.0.1:80",
        "PYSERVE_WEB_PORT_80_TCP": "tcp://10.0.0.1:80",
        "PYSERVE_WEB_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert [] == unknown_names(variables)


def test_middlewares_are_named_with_a_colon_or_as_ray_serve_does():
    assert read_settings({}).http_middlewares is None
    for path in ("a.b:c", "a.b.c"):
        assert "a.b:c" == read_settings({"PYSERVE_HTTP_MIDDLEWARES": path}).http_middlewares
    found = read_settings({"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "a:b"})
    assert "a:b" == found.http_middlewares


def test_no_spare_replica_is_kept_unless_the_environment_says_how_many():
    assert 0 == read_settings({}).spare_replicas
    assert 2 == read_settings({"PYSERVE_SPARE_REPLICAS": "2"}).spare_replicas


def test_the_controller_s_interval_has_ray_serve_s_name_too():
    assert read_settings({}).control_interval_s is None
    assert 0.1 == read_settings({"RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.1"}).control_interval_s
    assert read_settings({"PYSERVE_CONTROL_LOOP_INTERVAL_S": "0"}).control_interval_s is None
    with pytest.raises(OptionError, match="PYSERVE_CONTROL_LOOP_INTERVAL_S"):
        read_settings({"PYSERVE_CONTROL_LOOP_INTERVAL_S": "often"})
