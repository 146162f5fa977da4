"""When a deploy keeps the replicas that serve."""

import json
from typing import Any

import pytest

from pyserve.control.replicas.identity import new_replica
from pyserve.control.state.replica import ReplicaIndex
from pyserve.control.state.specs import changes_limits_only, read_versions
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import mesh_pb2


def key(name: str) -> DeploymentKey:
    return DeploymentKey(ApplicationName("shop"), DeploymentName(name))


def spec(**changes: Any) -> mesh_pb2.DeploymentSpec:
    options = {"max_ongoing_requests": 5, "num_replicas": 1} | changes.pop("options", {})
    code = {"import_path": "a:B", "fingerprint": b"same"} | changes.pop("code", {})
    return mesh_pb2.DeploymentSpec(
        name="B", code=mesh_pb2.Code(**code), options_json=json.dumps(options), **changes
    )


LIMIT = {"options": {"max_ongoing_requests": 9}}


def test_another_limit_is_taken_on():
    assert changes_limits_only({key("b"): spec()}, {key("b"): spec(**LIMIT)})


def test_another_policy_is_for_the_routers():
    policy = {"options": {"request_router_config": {"policy": "least"}}}

    assert changes_limits_only({key("b"): spec()}, {key("b"): spec(**policy)})


@pytest.mark.parametrize(
    "options",
    [
        {"num_replicas": 2},
        {"rolling_update_percentage": 0.5},
        {"max_surge_percent": 50},
        {"max_constructor_retry_count": 2},
        {"request_timeout_s": 2.0},
    ],
)
def test_what_only_the_controller_looks_at_keeps_replicas(options: dict[str, Any]):
    assert changes_limits_only({key("b"): spec()}, {key("b"): spec(options=options)})


@pytest.mark.parity("G-19")
@pytest.mark.parity("G-22")
@pytest.mark.parametrize(
    "options",
    [
        {"logging_config": {"log_level": "DEBUG"}},
        {"startup_timeout_s": 9.0},
        {"health_check_period_s": 1.0},
        {"health_check_timeout_s": 1.0},
        {"graceful_shutdown_timeout_s": 1.0},
        {"graceful_shutdown_wait_loop_s": 1.0},
    ],
)
def test_times_and_logs_are_taken_on(options: dict[str, Any]):
    assert changes_limits_only({key("b"): spec()}, {key("b"): spec(options=options)})


def test_another_user_config_is_taken_on_where_there_was_one():
    one, other = {"options": {"user_config": 1}}, {"options": {"user_config": {"a": 2}}}
    none = {"options": {"user_config": None}}

    assert changes_limits_only({key("b"): spec(**one)}, {key("b"): spec(**other)})
    assert not changes_limits_only({key("b"): spec(**one)}, {key("b"): spec(**none)})
    assert not changes_limits_only({key("b"): spec(**none)}, {key("b"): spec(**one)})


def test_one_of_several_deployments_is_enough():
    before = {key("b"): spec(), key("c"): spec()}

    assert changes_limits_only(before, before | {key("c"): spec(**LIMIT)})


def test_the_very_same_is_a_wish_for_new_replicas():
    assert not changes_limits_only({key("b"): spec()}, {key("b"): spec()})


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"max_ongoing_requests": 9, "serializer": "json"}},
        {**LIMIT, "arguments": b"other"},
        {**LIMIT, "code": {"import_path": "a:C"}},
        {**LIMIT, "code": {"fingerprint": b"edited"}},
        {**LIMIT, "interceptors": b"other"},
        {"options": {"request_router_config": {"request_routing_stats_period_s": 1.0}}},
        {"options": {"request_router_config": {"request_routing_stats_timeout_s": 1.0}}},
    ],
)
def test_whatever_else_differs_needs_new_replicas(change: dict[str, Any]):
    assert not changes_limits_only({key("b"): spec()}, {key("b"): spec(**change)})


def test_unknown_source_files_may_have_changed():
    unknown = {"code": {"fingerprint": b""}}

    assert not changes_limits_only(
        {key("b"): spec(**unknown)}, {key("b"): spec(**unknown, **LIMIT)}
    )


def test_a_deployment_more_or_less_is_another_application():
    one, two = {key("b"): spec()}, {key("b"): spec(**LIMIT), key("c"): spec()}

    assert not changes_limits_only(one, two)
    assert not changes_limits_only(two, one)


@pytest.mark.parity("G-67")
def test_a_version_and_its_replicas_know_whom_they_call():
    called = [
        mesh_pb2.DeploymentKey(application="shop", name="c"),
        mesh_pb2.DeploymentKey(application="other", name="d"),
    ]
    versions = read_versions(ApplicationName("shop"), [spec(calls=called)], deploy=1)
    ((found, (version, _)),) = versions.items()

    other = DeploymentKey(ApplicationName("other"), DeploymentName("d"))
    assert {key("c"), other} == version.calls
    assert version.calls == new_replica(found, version, 0, 0.0, ReplicaIndex()).calls


def test_what_older_drivers_do_not_say_rolls_nothing():
    before, after = {key("b"): spec()}, {key("b"): spec(takes_http=True)}
    (version, _), *_ = read_versions(key("b").application, after.values(), 1).values()

    assert version.takes_http
    assert changes_limits_only(before, after)
    assert not changes_limits_only(before, {key("b"): spec(takes_http=True, arguments=b"other")})
