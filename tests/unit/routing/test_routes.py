"""What a view says wins; the router's own process decides about the rest."""

import json
from types import SimpleNamespace
from typing import cast

import pytest

from pyserve import _router
from pyserve.config import DeploymentOptions, RequestRouterConfig, RouterDefaults
from pyserve.control.views.routing import router_settings
from pyserve.routing import routes
from pyserve.routing.policies import Policies
from pyserve.wire.v1 import mesh_pb2

DEFAULTS = RouterDefaults(prefer_local_node=False, max_backoff_s=2.0, max_attempts=4)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch):
    """Return what the native settings are made of."""
    monkeypatch.setattr(routes, "rust", SimpleNamespace(RouterSettings=dict, DeploymentRoute=dict))

    def of(config: RequestRouterConfig) -> object:
        view = mesh_pb2.DeploymentView(router=router_settings(config, ()))
        route = cast("dict[str, object]", routes.route_of(view, DEFAULTS, Policies()))
        return route["router"]

    return of


def test_what_a_deployment_leaves_out_is_the_processes_default(said):
    found = said(RequestRouterConfig())

    assert ("late_binding", False, True, 0.025, 2.0, 4, 5) == tuple(
        found[name]
        for name in (
            "policy",
            "prefer_node",
            "prefer_zone",
            "initial_backoff_s",
            "max_backoff_s",
            "retry_attempts_max",
            "ejection_fall",
        )
    )


def test_a_default_travels_unset_since_releases_differ_in_it():
    """A router of the release before may not know the name of ours."""
    assert "" == router_settings(RequestRouterConfig(), ()).policy
    written = json.loads(DeploymentOptions().to_json())["request_router_config"]
    assert "policy" not in written
    chosen = DeploymentOptions.of({"request_router_config": {"policy": "least"}})
    assert "least" == json.loads(chosen.to_json())["request_router_config"]["policy"]


def test_a_router_goes_on_with_a_policy_that_only_its_controller_knows(monkeypatch, caplog):
    monkeypatch.setattr(routes, "rust", SimpleNamespace(RouterSettings=dict, DeploymentRoute=dict))
    view = mesh_pb2.DeploymentView(router=mesh_pb2.RouterSettings(policy="clairvoyant"))

    for _ in range(2):
        route = cast("dict[str, dict[str, object]]", routes.route_of(view, DEFAULTS, Policies()))
        assert "late_binding" == route["router"]["policy"]

    (told,) = [each.getMessage() for each in caplog.records]
    assert "'clairvoyant'" in told
    assert "'late_binding'" in told


def test_what_a_deployment_says_wins(said):
    found = said(
        RequestRouterConfig(
            policy="least", prefer_local_node=True, initial_backoff_s=3.0, ejection_fall=0
        )
    )

    assert ("least", True, 0) == (found["policy"], found["prefer_node"], found["ejection_fall"])
    codes = said(RequestRouterConfig(retryable_status_codes=("ABORTED", "UNAUTHENTICATED")))
    assert ([10, 16], None) == (codes["retry_codes"], found["retry_codes"])
    bounded = said(RequestRouterConfig(policy="consistent_hash", load_bound=1.5))
    assert (1.5, 1.25) == (bounded["load_bound"], found["load_bound"])
    # A default of the process never contradicts what the deployment has said.
    assert (3.0, 3.0) == (found["initial_backoff_s"], found["max_backoff_s"])


@pytest.mark.parametrize(
    "policy", ["late_binding", "p2c", "least", "predicted", "round_robin", "consistent_hash"]
)
@pytest.mark.parity("G-20")
def test_every_policy_is_known_to_the_native_half(policy: str):
    view = mesh_pb2.DeploymentView(router=router_settings(RequestRouterConfig(policy=policy), ()))

    assert isinstance(routes.route_of(view, DEFAULTS, Policies()), _router.DeploymentRoute)


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "fastest"},
        {"initial_backoff_s": -1},
        {"backoff_multiplier": 0.5},
        {"load_bound": 1.0},
    ],
)
def test_native_settings_check_themselves(wrong: dict[str, object]):
    with pytest.raises(
        ValueError, match=r"fastest|initial_backoff_s|backoff_multiplier|load_bound"
    ):
        _router.RouterSettings(**wrong)  # type: ignore[arg-type]  # wrong on purpose
