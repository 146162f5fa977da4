"""What a view says wins; the router's own process decides about the rest."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pyserve import _router
from pyserve.bridge import rust
from pyserve.config import DeploymentOptions, RequestRouterConfig
from pyserve.config.routing import OPTIONS, VARIABLES, read_router_defaults
from pyserve.control.views import router_settings
from pyserve.routing import feed
from pyserve.routing.policies import Policies
from pyserve.wire.v1 import mesh_pb2

DEFAULTS = read_router_defaults({}) | {
    "prefer_local_node": False,
    "max_backoff_s": 2.0,
    "max_attempts": 4,
}


class _Said:
    """Stands for a native route, and keeps what it is made of."""

    def __init__(self, view: bytes, *, options: dict[str, float], **_rest: object) -> None:
        self.view = mesh_pb2.DeploymentView.FromString(view)
        self.options = options


def route_of(router: mesh_pb2.RouterSettings) -> rust.DeploymentRoute:
    return feed.route_of(mesh_pb2.DeploymentView(router=router), DEFAULTS, Policies())


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch):
    """Return what the native half is told."""
    monkeypatch.setattr(feed, "rust", SimpleNamespace(DeploymentRoute=_Said))
    return lambda config: route_of(router_settings(config, ()))


def test_what_a_deployment_leaves_out_is_the_processes_default(said):
    found = said(RequestRouterConfig()).options

    assert (False, True, 0.025, 2.0, 4, 5) == tuple(
        found[name]
        for name in (
            "prefer_local_node",
            "prefer_local_zone",
            "initial_backoff_s",
            "max_backoff_s",
            "max_attempts",
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


def test_a_router_goes_on_with_a_policy_that_only_its_controller_knows(caplog):
    for _ in range(2):
        route_of(mesh_pb2.RouterSettings(policy="clairvoyant"))

    (told,) = [each.getMessage() for each in caplog.records]
    assert "'clairvoyant'" in told
    assert "'late_binding'" in told


def test_what_a_deployment_says_wins(said):
    found = said(
        RequestRouterConfig(
            policy="least", prefer_local_node=True, initial_backoff_s=3.0, ejection_fall=0
        )
    )

    assert "least" == found.view.router.policy
    assert (True, 0) == (found.options["prefer_local_node"], found.options["ejection_fall"])
    codes = said(RequestRouterConfig(retryable_status_codes=("ABORTED", "UNAUTHENTICATED")))
    assert ([10, 16], []) == (codes.view.router.retry_codes, found.view.router.retry_codes)
    bounded = said(RequestRouterConfig(policy="consistent_hash", load_bound=1.5))
    assert (1.5, 1.25) == (bounded.options["load_bound"], found.options["load_bound"])
    # A default of the process never contradicts what the deployment has said.
    assert (3.0, 3.0) == (found.options["initial_backoff_s"], found.options["max_backoff_s"])


def test_options_without_a_field_of_their_own_travel_by_name(said, monkeypatch):
    options = {**OPTIONS, "later": replace(OPTIONS["slow_start_s"])}
    monkeypatch.setattr(feed, "OPTIONS", options)
    settings = mesh_pb2.RouterSettings(options={"later": 2.0, "unheard_of": 1.0})

    found = route_of(settings).options  # type: ignore[attr-defined]  # It is a _Said.

    assert 2.0 == found["later"]
    assert "unheard_of" not in found


@pytest.mark.parametrize(
    "policy", ["late_binding", "p2c", "least", "predicted", "round_robin", "consistent_hash"]
)
@pytest.mark.parity("G-20")
def test_every_policy_is_known_to_the_native_half(policy: str):
    settings = router_settings(RequestRouterConfig(policy=policy), ())

    assert isinstance(route_of(settings), _router.DeploymentRoute)


@pytest.mark.parametrize(
    "name", [*VARIABLES, *(n for n, each in OPTIONS.items() if each.is_of_router)]
)
def test_every_option_of_routers_is_known_to_the_native_half(name: str):
    _router.DeploymentRoute(b"", options={name: 1.0})


@pytest.mark.parametrize(
    ("option", "value"), [("slow_strat_s", 1.0), ("initial_backoff_s", -1.0), ("hedging", 2.0)]
)
def test_an_option_that_the_native_half_cannot_take_is_refused_by_name(option: str, value: float):
    with pytest.raises(ValueError, match=option):
        _router.DeploymentRoute(b"", options={option: value})


def test_a_message_that_cannot_be_read_is_refused():
    with pytest.raises(ValueError, match="view: "):
        _router.DeploymentRoute(b"no message")
