"""What routers of Ray Serve's users are written with."""

from __future__ import annotations

import pytest

from pyserve.api.policy import Candidate, RoutedRequest, check_policy, policy_class
from pyserve.errors import OptionError
from pyserve.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)
from pyserve.routing.policies import Chooser

IDLE = Candidate("idle", "here", 0, 2)
BUSY = Candidate("busy", "there", 2, 2, ("m",))
LOADED = Candidate("loaded", "there", 1, 2, ("m", "n"))
OTHER = Candidate("other", "here", 1, 2, ("n",))


class Unfinished(FIFOMixin, RequestRouter):
    """Chooses nothing."""


class Router(FIFOMixin, MultiplexMixin, LocalityMixin, RequestRouter):
    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        assert pending_request is not None
        ranks = self.rank_replicas_via_multiplex(
            replicas=candidate_replicas,
            multiplexed_model_id=pending_request.metadata.multiplexed_model_id,
        )
        return [self.select_available_replicas(candidates=rank) for rank in ranks]


def test_replicas_are_ranked_by_their_models():
    ranks = Router().rank_replicas_via_multiplex([IDLE, BUSY, LOADED, OTHER], "m")
    assert [[BUSY, LOADED], [IDLE], [OTHER]] == ranks
    assert [[], [], []] == Router().rank_replicas_via_multiplex([], "m")


def test_replicas_are_ranked_by_their_nodes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYSERVE_NODE_ID", "here")
    assert [[IDLE, OTHER], [], [BUSY]] == Router().rank_replicas_via_locality([IDLE, BUSY, OTHER])


@pytest.mark.parity("G-76")
def test_a_router_picks_among_those_that_have_room():
    raw = [
        (each.replica_id, each.node_id, each.in_flight, each.capacity, list(each.model_ids))
        for each in (IDLE, BUSY, LOADED, OTHER)
    ]
    assert ["loaded", "idle", "other"] == Chooser("mine", Router())(raw, "/a.B/c", "", "m")


def test_what_is_known_of_a_call_is_its_metadata():
    request = RoutedRequest("/app.Model/predict", "s", "m")
    found = request.metadata
    assert ("predict", "s", "m") == (
        found.call_method,
        found.session_id,
        found.multiplexed_model_id,
    )
    assert (2, frozenset({"m"})) == (BUSY.max_ongoing_requests, BUSY.multiplexed_model_ids)


def test_a_router_without_a_choice_is_refused():
    with pytest.raises(OptionError, match="a class with a method choose"):
        policy_class(f"{__name__}:Unfinished")
    check_policy(f"{__name__}:Router", {})
    with pytest.raises(OptionError, match=r"policy_kwargs=.*what .*:Router takes"):
        check_policy(f"{__name__}:Router", {"key": 1})
