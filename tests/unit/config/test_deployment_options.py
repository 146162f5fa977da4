"""Deployment options: defaults, older names, refusals that say what is allowed, JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.config import AutoscalingConfig, BatchingConfig, DeploymentOptions
from pyserve.errors import OptionError


def test_defaults_are_the_documented_ones():
    options = DeploymentOptions()

    assert (1, None, -1) == (
        options.num_replicas,
        options.max_ongoing_requests,
        options.max_queued_requests,
    )
    assert (10.0, 30.0, 2.0, 20.0, 300.0) == (
        options.health_check_period_s,
        options.health_check_timeout_s,
        options.graceful_shutdown_wait_loop_s,
        options.graceful_shutdown_timeout_s,
        options.startup_timeout_s,
    )
    assert 4 * 1024 * 1024 == options.max_receive_message_bytes
    assert "late_binding" == options.request_router_config.policy


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"num_replicas": -1}, ["num_replicas=-1", "at least 0", "'auto'"]),
        ({"num_replicas": True}, ["num_replicas=True"]),
        ({"num_replicas": "many"}, ["num_replicas='many'", "'auto'"]),
        ({"max_ongoing_requests": 0}, ["max_ongoing_requests=0", "at least 1"]),
        ({"startup_timeout_s": 0}, ["startup_timeout_s=0", "seconds above 0"]),
        ({"startup_timeout_s": float("nan")}, ["startup_timeout_s=nan"]),
        ({"request_timeout_s": "1"}, ["request_timeout_s='1'", "seconds"]),
        ({"num_replica": 2}, ["'num_replica'", "did you mean 'num_replicas'"]),
        ({"num_gpus": 1}, ["no option 'num_gpus'", "belongs in 'resources'", "{'num_gpus': ...}"]),
        ({"num_gpu": 1}, ["did you mean 'num_gpus' in 'resources'?"]),
        ({"policy": "p2c"}, ["in 'autoscaling_config' or 'request_router_config'"]),
        ({"max_batch_size": 8}, ["belongs in 'batching_config'"]),
        ({"min_replica": 1}, ["did you mean 'min_replicas' in 'autoscaling_config'?"]),
        ({"max_receive_message_bytes": 2**40}, ["max_receive_message_bytes", "2147483647"]),
        ({"batching_config": {"max_batch_size": 0}}, ["batching_config.max_batch_size=0"]),
        ({"batching_config": 3}, ["batching_config=3", "a mapping"]),
        ({"autoscaling_config": {"max_replicas": 0}}, ["autoscaling_config.max_replicas=0"]),
        (
            {"request_router_config": {"policy": "fastest"}},
            ["request_router_config.policy='fastest'", "'p2c'", "import path"],
        ),
        ({"user_config": object()}, ["user_config", "JSON"]),
        ({"env_vars": {"A": 1}}, ["env_vars", "strings to strings"]),
        ({"name": "a/b"}, ["name='a/b'"]),
        ({"logging_config": {"log_level": "LOUD"}}, ["logging_config.log_level='LOUD'"]),
    ],
)
def test_refusal_names_field_value_and_what_is_allowed(values, parts):
    with pytest.raises(OptionError) as caught:
        DeploymentOptions.of(values)

    assert [] == [part for part in parts if part not in str(caught.value)]


def test_older_name_is_understood_with_a_warning():
    with pytest.warns(DeprecationWarning, match="max_ongoing_requests"):
        options = DeploymentOptions.of({"max_concurrent_queries": 7})

    assert 7 == options.max_ongoing_requests


def test_alias_of_batching_timeout_is_understood():
    options = DeploymentOptions.of({"batching_config": {"batch_wait_timeout_s": 0.5}})

    assert BatchingConfig(timeout_s=0.5) == options.batching_config


def test_updated_replaces_only_what_is_given():
    options = DeploymentOptions.of({"num_replicas": 2, "user_config": {"a": 1}})

    assert DeploymentOptions.of({"num_replicas": 3, "user_config": {"a": 1}}) == options.updated(
        {"num_replicas": 3}
    )


@pytest.mark.parametrize(
    ("values", "batch_capacity", "limit"),
    [
        ({}, 0, 100),
        ({}, 64, 128),
        ({"batching_config": {"max_batch_size": 32, "max_concurrent_batches": 4}}, 0, 256),
        ({"max_ongoing_requests": 5}, 64, 5),
    ],
)
@pytest.mark.parity("S-25")
def test_ongoing_limit_leaves_room_for_two_batches(values, batch_capacity, limit):
    assert limit == DeploymentOptions.of(values).ongoing_requests_limit(batch_capacity)


def test_auto_starts_with_the_fewest_replicas():
    assert 1 == DeploymentOptions(num_replicas="auto").initial_num_replicas
    scaling = AutoscalingConfig(min_replicas=2, max_replicas=5, initial_replicas=4)
    assert 4 == DeploymentOptions(autoscaling_config=scaling).initial_num_replicas


def _text(*, but: str, min_size: int = 0) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_characters=but), min_size=min_size)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "num_replicas": st.one_of(st.just("auto"), st.integers(0, 9)),
            "max_ongoing_requests": st.integers(1, 10_000),
            "user_config": st.dictionaries(st.text(), st.integers()),
            "request_timeout_s": st.floats(0.001, 1e6),
            "batching_config": st.fixed_dictionaries(
                {}, optional={"methods": st.lists(st.text(min_size=1))}
            ),
            "resources": st.fixed_dictionaries({}, optional={"num_gpus": st.floats(0, 8)}),
            "env_vars": st.dictionaries(_text(but="=\0", min_size=1), _text(but="\0")),
        },
    )
)
def test_options_survive_json(values):
    options = DeploymentOptions.of(values)

    assert options == DeploymentOptions.from_json(options.to_json())


def test_json_leaves_python_objects_out():
    options = DeploymentOptions.of({"interceptors": [object()]})

    assert "interceptors" not in json.loads(options.to_json())


def test_what_a_newer_release_wrote_is_read_without_what_only_it_knows():
    options = DeploymentOptions.of(
        {
            "resources": {"num_cpus": 2},
            "autoscaling_config": {"max_replicas": 3, "policy": {"policy_function": "a:b"}},
        }
    )
    written = json.loads(options.to_json())
    written["colour"] = "red"
    for part in (
        written["resources"],
        written["request_router_config"],
        written["autoscaling_config"],
        written["autoscaling_config"]["policy"],
        written["logging_config"],
    ):
        part["colour"] = "red"

    assert options == DeploymentOptions.from_peer(json.dumps(written))


def test_no_number_of_replicas_is_one_or_as_the_load_needs() -> None:
    """Programs for Ray Serve write it beside ``autoscaling_config``, which it makes room for."""
    assert 1 == DeploymentOptions.of({"num_replicas": None}).num_replicas
    assert (
        1 == DeploymentOptions.of({"num_replicas": 4}).updated({"num_replicas": None}).num_replicas
    )
    scaled = {"num_replicas": None, "autoscaling_config": {"max_replicas": 3}}
    for options in (
        DeploymentOptions.of(scaled),
        DeploymentOptions.of({"num_replicas": 4}).updated(scaled),
    ):
        assert options.autoscaling_config is not None
        assert 3 == options.autoscaling_config.max_replicas
        assert DeploymentOptions.from_peer(options.to_json()) == options
