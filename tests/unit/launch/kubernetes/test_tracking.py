"""From news of pods to news of replicas, in whatever order they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.launch import Ended, Event, Waiting
from pyserve.launch.on_kubernetes.reading import DELETED, NodeView, PodView, Tracking, read_pod
from pyserve.types import ReplicaId
from tests.unit.launch.kubernetes.objects import condition, pod, terminated, waiting
from tests.unit.launch.orders import ECHO

pytestmark = pytest.mark.parity("G-69")
NO_NODE = condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available")


def view(**status: Any) -> PodView:
    return read_pod(pod(**status))


PENDING = view()
UNPLACED = view(conditions=[NO_NODE])
NO_IMAGE = view(node="n7", state=waiting("ErrImagePull"))
RUNNING = view(node="n7", phase="Running", state={"running": {}})
LEAVING = view(node="n7", phase="Running", state={"running": {}}, leaving=True)
FAILED = view(node="n7", phase="Failed", state=terminated(1))
# A life from its beginning to its end, as the API server reports it.
LIFE = (PENDING, UNPLACED, NO_IMAGE, RUNNING, LEAVING, FAILED)


def expecting(*replicas: str) -> Tracking:
    tracking = Tracking()
    for each in replicas or (ECHO,):
        assert [] == tracking.expect(ReplicaId(each))
    return tracking


def told(tracking: Tracking, views: Sequence[PodView]) -> list[Event]:
    return [event for each in views for event in tracking.handle(each)]


def test_what_it_waits_for_is_told_when_it_changes_and_taken_back() -> None:
    tracking = expecting()

    events = told(tracking, [PENDING, UNPLACED, UNPLACED, NO_IMAGE, NO_IMAGE, RUNNING, RUNNING])

    assert [
        Waiting(ECHO, "a node: Unschedulable: 0/2 nodes are available"),
        Waiting(ECHO, "its image registry.example/echo:2: ErrImagePull"),
        Waiting(ECHO, ""),
    ] == events


def test_the_end_is_told_with_its_reason_and_once() -> None:
    tracking = expecting()

    events = told(tracking, [RUNNING, FAILED, FAILED, RUNNING])

    assert [Ended(ECHO, "ended with exit code 1")] == events
    assert [] == tracking.handle(FAILED, DELETED)


def test_one_that_was_deleted_has_ended() -> None:
    tracking = expecting()
    tracking.handle(RUNNING)

    [event] = tracking.handle(LEAVING, DELETED)

    assert Ended(ECHO, "ended: its pod echo-abcde on node n7 was deleted") == event
    assert not tracking.expects(ECHO)


def test_the_end_of_another_pod_of_that_name_is_not_its_own() -> None:
    tracking = expecting()
    tracking.handle(RUNNING)

    assert [] == tracking.handle(view(uid="two"), DELETED)
    assert tracking.expects(ECHO)


def test_pods_of_nobody_are_kept_for_whoever_expects_them() -> None:
    tracking = Tracking()
    tracking.handle(FAILED)

    assert {ECHO: FAILED} == tracking.strays
    assert [Ended(ECHO, "ended with exit code 1")] == tracking.expect(ECHO)
    assert {} == tracking.strays


def test_pods_of_nobody_that_go_are_forgotten() -> None:
    tracking = Tracking()
    tracking.handle(RUNNING)

    assert [] == tracking.handle(RUNNING, DELETED)
    assert {} == tracking.strays


def test_objects_that_are_no_replicas_are_left_alone() -> None:
    tracking = Tracking()

    assert [] == tracking.handle(view(replica=""))
    assert {} == tracking.strays


def test_what_a_list_lacks_that_was_there_before_has_ended() -> None:
    tracking = expecting()
    tracking.handle(RUNNING)

    [event] = tracking.replace([], tracking.present())

    assert isinstance(event, Ended)


def test_what_a_list_lacks_that_came_after_it_was_asked_for_goes_on() -> None:
    tracking = expecting()
    before = tracking.present()
    tracking.handle(RUNNING)

    assert [] == tracking.replace([], before)
    assert tracking.expects(ECHO)


def test_what_has_been_asked_for_and_was_never_seen_goes_on() -> None:
    tracking = expecting()

    assert [] == tracking.replace([], tracking.present())
    assert tracking.expects(ECHO)


def test_one_that_is_given_up_is_lost_with_its_node() -> None:
    tracking = expecting()
    tracking.handle(RUNNING)

    events = tracking.give_up(ECHO, {"n7": NodeView("n7", "", "NotReady")})

    assert [Ended(ECHO, "was lost with its node n7: NotReady")] == events
    assert [] == tracking.handle(RUNNING, DELETED), "it is told once"


def test_one_that_was_never_begun_has_no_end() -> None:
    tracking = expecting()
    tracking.forget(ECHO)

    assert [] == tracking.give_up(ECHO, {})
    assert not tracking.expects(ECHO)


# One piece of news: a place in the life, and how it is told.
NEWS = st.tuples(st.integers(0, len(LIFE) - 1), st.sampled_from(["watch", "list", "twice"]))


@given(
    steps=st.lists(NEWS, max_size=12),
    end=st.sampled_from(["failed", "deleted", "absent", "given up"]),
)
def test_whatever_was_missed_or_repeated_there_is_one_end_and_it_is_last(
    steps: list[tuple[int, str]], end: str
) -> None:
    """A watch that was away misses steps; one that restarts sees some twice."""
    tracking = expecting()
    events: list[Event] = []
    # A life goes one way; what lies between may be missing.
    for place, way in sorted(steps, key=lambda step: step[0]):
        seen = LIFE[place]
        if way == "list":
            events += tracking.replace([seen], tracking.present())
        else:
            events += told(tracking, [seen] * (2 if way == "twice" else 1))
    events += told(tracking, [RUNNING] if tracking.expects(ECHO) else [])
    match end:
        case "failed":
            events += tracking.handle(FAILED)
        case "deleted":
            events += tracking.handle(LEAVING, DELETED)
        case "absent":
            events += tracking.replace([], tracking.present())
        case _:
            events += tracking.give_up(ECHO, {})

    ends = [each for each in events if isinstance(each, Ended)]
    assert 1 == len(ends), events
    assert events[-1] is ends[0]
    assert not tracking.expects(ECHO)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, len(LIFE) - 1)), max_size=30
    )
)
def test_replicas_say_nothing_of_each_other(news: list[tuple[str, int]]) -> None:
    """The reports about a pod do not depend on the other pods."""
    together = expecting("E#a", "E#b", "E#c")
    alone = {each: expecting(f"E#{each}") for each in "abc"}
    for name, place in news:
        seen = PodView(
            **{
                **{slot: getattr(LIFE[place], slot) for slot in PodView.__slots__},
                "replica_id": ReplicaId(f"E#{name}"),
                "uid": name,
            }
        )
        assert alone[name].handle(seen) == together.handle(seen)
