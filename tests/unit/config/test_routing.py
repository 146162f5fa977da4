"""How routers pick: what a deployment may say, in whose words, and what the environment adds."""

import pytest

from pyserve.config import (
    DeploymentOptions,
    RequestRouterConfig,
    RouterDefaults,
    older_names,
    read_settings,
)
from pyserve.errors import OptionError


def config(**values: object) -> RequestRouterConfig:
    return DeploymentOptions.of({"request_router_config": values}).request_router_config


def defaults(**variables: str) -> RouterDefaults:
    return read_settings(variables).routing


class Chooser:
    """Something that routers could import."""


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"policy": "fastest"}, ["policy='fastest'", "'p2c'", "'predicted'", "module:Class"]),
        ({"policy": "a:b:c"}, ["policy='a:b:c'", "module:Class"]),
        ({"policy": ""}, ["policy=''"]),
        ({"policy": "least", "policy_kwargs": {"a": 1}}, ["policy_kwargs={'a': 1}", "'least'"]),
        ({"policy": "consistent_hash", "load_bound": 1}, ["load_bound=1", "above 1"]),
        ({"policy": "consistent_hash", "load_bound": "2"}, ["load_bound='2'", "a number"]),
        ({"load_bound": 2}, ["load_bound=2", "'late_binding'", "policy='consistent_hash'"]),
        ({"initial_backoff_s": -0.1}, ["initial_backoff_s=-0.1", "above 0"]),
        ({"max_backoff_s": 0}, ["max_backoff_s=0", "above 0"]),
        ({"initial_backoff_s": 2, "max_backoff_s": 1}, ["max_backoff_s=1", "initial_backoff_s=2"]),
        ({"backoff_multiplier": 0.5}, ["backoff_multiplier=0.5", "at least 1"]),
        ({"slow_start_s": -1}, ["slow_start_s=-1", "at least 0"]),
        ({"max_attempts": 0}, ["max_attempts=0", "at least 1"]),
        ({"retry_budget_percent": 101}, ["retry_budget_percent=101", "at most 100"]),
        ({"hedging": 1}, ["hedging=1", "True or False"]),
        ({"ejection_fall": -1}, ["ejection_fall=-1", "at least 0"]),
        ({"ejection_rise": 0}, ["ejection_rise=0", "at least 1"]),
        ({"ejection_interval_s": 0}, ["ejection_interval_s=0", "above 0"]),
        ({"prefer_local_zone": "eu"}, ["prefer_local_zone='eu'", "True or False"]),
        ({"tiers": ["rack"]}, ["tiers='rack'", "'node', 'zone', 'any'"]),
        ({"tiers": ["zone", "node"]}, ["tiers=['zone', 'node']", "from near to far"]),
        ({"tiers": "node"}, ["tiers='node'", "a list"]),
        ({"tiers": [], "prefer_local_node": True}, ["tiers=[]", "prefer_local_node=True"]),
        ({"retryPolicy": {"maxAttempt": 2}}, ["'maxAttempt'", "maxAttempts"]),
        ({"retryPolicy": {"initialBackoff": 0.1}}, ["initialBackoff=0.1", "'0.1s'"]),
        (
            {"retryPolicy": {"retryableStatusCodes": ["OK"]}},
            ["retryableStatusCodes='OK'", "'ABORTED'"],
        ),
        ({"retryPolicy": {"retryableStatusCodes": []}}, ["retryableStatusCodes=[]", "one code"]),
        ({"retryable_status_codes": "ABORTED"}, ["status_codes='ABORTED'", "a list"]),
        ({"polcy": "least"}, ["'polcy'", "did you mean 'policy'"]),
        (
            {"request_router_class": "ray.serve.llm.request_router:SessionAffinityRouter"},
            ["SessionAffinityRouter", "ConsistentHashRouter", "module:Class"],
        ),
        ({"request_router_class": 3}, ["request_router_class=3", "module:Class"]),
        ({"request_router_class": "Unheard"}, ["request_router_class='Unheard'", "module:Class"]),
        ({"policy": "p2c", "request_router_class": "a:B"}, ["both", "keep policy"]),
    ],
)
def test_a_refusal_names_the_field_the_value_and_what_is_allowed(
    values: dict[str, object], parts: list[str]
):
    with pytest.raises(OptionError) as caught:
        config(**values)

    assert [] == [part for part in parts if part not in str(caught.value)]


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter", "p2c"),
        ("ray.serve._private.request_router.PowerOfTwoChoicesRequestRouter", "p2c"),
        ("ray.serve.experimental.round_robin_router:RoundRobinRouter", "round_robin"),
        ("ray.serve.experimental.consistent_hash_router:ConsistentHashRouter", "consistent_hash"),
        ("RoundRobinRouter", "round_robin"),
        (
            "ray.serve.llm.request_router.PrefixCacheAffinityRouter",
            "pyserve.llm.request_router:PrefixCacheAffinityRouter",
        ),
        ("our.routers.UniformRequestRouter", "our.routers:UniformRequestRouter"),
        ("our.routers:UniformRequestRouter", "our.routers:UniformRequestRouter"),
    ],
)
@pytest.mark.parity("G-20")
def test_the_classes_of_ray_serve_stand_for_our_policies(path: str, policy: str):
    found = config(
        request_router_class=path,
        request_router_kwargs={"virtual_nodes": 100},
        request_routing_stats_period_s=5.0,
        request_routing_stats_timeout_s=15.0,
        initial_backoff_s=0.025,
        backoff_multiplier=2,
        max_backoff_s=0.5,
    )

    assert policy == found.policy
    is_own = ":" in policy
    assert ({"virtual_nodes": 100} if is_own else {}) == found.policy_kwargs
    assert (policy if is_own else "") == found.policy_path


def test_a_class_is_named_by_its_import_path():
    assert f"{__name__}:Chooser" == config(policy=Chooser).policy
    assert f"{__name__}:Chooser" == config(request_router_class=Chooser).policy

    class Local:
        pass

    with pytest.raises(OptionError, match="a class that its module has"):
        config(policy=Local)


def test_tiers_are_another_way_to_write_locality():
    near = config(tiers=["node", "any"])
    assert (True, False) == (near.prefer_local_node, near.prefer_local_zone)
    assert (True, True) == (
        config(tiers=["node", "zone"]).prefer_local_node,
        config(tiers=["node", "zone"]).prefer_local_zone,
    )
    assert (None, None) == (config().prefer_local_node, config().prefer_local_zone)


def test_retries_may_be_written_as_in_a_service_config():
    found = config(
        retryPolicy={
            "maxAttempts": 4,
            "initialBackoff": "0.1s",
            "maxBackoff": "1s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"],
        }
    )

    assert ("UNAVAILABLE", "ABORTED") == found.retryable_status_codes
    assert (4, 0.1, 1.0, 2) == (
        found.max_attempts,
        found.initial_backoff_s,
        found.max_backoff_s,
        found.backoff_multiplier,
    )


def test_settings_survive_json():
    options = DeploymentOptions.of(
        {
            "request_router_config": {
                "policy": "our.routers:Mine",
                "policy_kwargs": {"a": [1]},
                "tiers": ["node"],
                "max_attempts": 2,
                "retryable_status_codes": ["ABORTED"],
            },
            "traffic": {"canary": 0.05},
            "mirror": {"shadow/Model": 1},
        }
    )

    assert options == DeploymentOptions.from_json(options.to_json())


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"traffic": {"v2": 0}}, ["traffic={'v2': 0}", "above 0"]),
        ({"traffic": {"v2": 0.6, "v3": 0.5}}, ["'v3': 0.5", "at most 1"]),
        ({"traffic": {"v2": -0.1}}, ["traffic['v2']=-0.1", "at least 0"]),
        ({"traffic": {"v2": 5}}, ["traffic['v2']=5", "from 0 to 1"]),
        ({"traffic": {"a/b/c": 0.1}}, ["a/b/c", "application/Deployment"]),
        ({"mirror": {"v2": "all"}}, ["mirror['v2']='all'"]),
        ({"mirror": ["v2"]}, ["mirror=['v2']", "a mapping"]),
    ],
)
def test_shares_that_cannot_be_are_refused(values: dict[str, object], parts: list[str]):
    with pytest.raises(OptionError) as caught:
        DeploymentOptions.of(values)

    assert [] == [part for part in parts if part not in str(caught.value)]


@pytest.mark.parametrize(
    ("ours", "theirs", "value", "field", "meaning"),
    [
        pytest.param(
            "PYSERVE_ROUTER_INITIAL_BACKOFF_S",
            "RAY_SERVE_ROUTER_RETRY_INITIAL_BACKOFF_S",
            "0.1",
            "initial_backoff_s",
            0.1,
            marks=pytest.mark.parity("S-48"),
        ),
        pytest.param(
            "PYSERVE_ROUTER_BACKOFF_MULTIPLIER",
            "RAY_SERVE_ROUTER_RETRY_BACKOFF_MULTIPLIER",
            "3",
            "backoff_multiplier",
            3.0,
            marks=pytest.mark.parity("S-48"),
        ),
        pytest.param(
            "PYSERVE_ROUTER_MAX_BACKOFF_S",
            "RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S",
            "2",
            "max_backoff_s",
            2.0,
            marks=pytest.mark.parity("S-48"),
        ),
        pytest.param(
            "PYSERVE_INGRESS_PREFER_LOCAL_NODE",
            "RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING",
            "0",
            "prefer_local_node",
            False,
            marks=pytest.mark.parity("S-51"),
        ),
        pytest.param(
            "PYSERVE_PREFER_LOCAL_ZONE",
            "RAY_SERVE_PROXY_PREFER_LOCAL_AZ_ROUTING",
            "0",
            "prefer_local_zone",
            False,
            marks=pytest.mark.parity("S-52"),
        ),
        pytest.param(
            "PYSERVE_MODEL_MATCHING_TIMEOUT_S",
            "RAY_SERVE_MULTIPLEXED_MODEL_ID_MATCHING_TIMEOUT_S",
            "0.25",
            "model_matching_timeout_s",
            0.25,
            marks=pytest.mark.parity("S-32"),
        ),
        pytest.param(
            "PYSERVE_ROUTER_MAX_RETRIES",
            "RAY_SERVE_HTTP_REQUEST_MAX_RETRIES",
            "10",
            "max_attempts",
            11,
            marks=pytest.mark.parity("S-47"),
        ),
        pytest.param(
            "PYSERVE_EJECTION_FALL",
            "RAY_SERVE_HAPROXY_HEALTH_CHECK_FALL",
            "3",
            "ejection_fall",
            3,
            marks=pytest.mark.parity("S-69"),
        ),
        pytest.param(
            "PYSERVE_EJECTION_RISE",
            "RAY_SERVE_HAPROXY_HEALTH_CHECK_RISE",
            "4",
            "ejection_rise",
            4,
            marks=pytest.mark.parity("S-69"),
        ),
        pytest.param(
            "PYSERVE_EJECTION_INTERVAL_S",
            "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER",
            "250ms",
            "ejection_interval_s",
            0.25,
            marks=pytest.mark.parity("S-69"),
        ),
    ],
)
def test_the_environment_is_read_in_both_spellings(
    ours: str, theirs: str, value: str, field: str, meaning: object
):
    assert defaults()[field] != meaning
    assert meaning == defaults(**{ours: value})[field]
    assert meaning == defaults(**{theirs: value})[field]
    assert [f"{theirs} is read as {ours}; write {ours}"] == older_names({theirs: value})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PYSERVE_ROUTER_INITIAL_BACKOFF_S", "0", "above 0"),
        ("PYSERVE_ROUTER_MAX_BACKOFF_S", "0.001", "at least PYSERVE_ROUTER_INITIAL_BACKOFF_S"),
        ("PYSERVE_ROUTER_BACKOFF_MULTIPLIER", "0.9", "at least 1"),
        ("PYSERVE_INGRESS_PREFER_LOCAL_NODE", "no", "1 for yes, 0 for no"),
        ("PYSERVE_ROUTER_MAX_RETRIES", "-1", "a whole number from 0"),
        ("PYSERVE_EJECTION_INTERVAL_S", "5m", "such as 5s or 250ms"),
        ("PYSERVE_EJECTION_RISE", "0", "from 1"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused_by_name(name: str, value: str, text: str):
    with pytest.raises(OptionError, match=f"{name}.*{text}"):
        defaults(**{name: value})
