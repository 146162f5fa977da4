"""A policy of the user's: what it gets, which answers are understood, and what failing costs."""

import logging
import sys
import threading
from pathlib import Path

import pytest

from pyserve import _router
from pyserve.api.policy import Candidate, RoutedRequest, check_policy, policy_class
from pyserve.bridge import rust
from pyserve.errors import OptionError
from pyserve.routing.policies import Chooser, Policies, ReplicaFacts
from pyserve.wire.v1 import mesh_pb2
from tests.support.waiting import wait_until

TIMEOUT_S = 30.0

RAW = [("a", "here", 2, 9, ["m"]), ("b", "there", 0, 9, [])]


class Policy:
    """Answers as it is told."""

    def __init__(self, answer: object = ()) -> None:
        self.answer = answer
        self.asked: list[tuple[list[Candidate], RoutedRequest]] = []

    def choose(self, candidates: list[Candidate], request: RoutedRequest) -> object:
        self.asked.append((candidates, request))
        return self.answer(candidates) if callable(self.answer) else self.answer


class Unfinished:
    """Has no method that could be asked."""


def test_a_policy_sees_replicas_and_the_call():
    policy = Policy(["b"])

    assert ["b"] == Chooser("mine", policy)(RAW, "/pkg.Service/Do", "s", "m")
    [(candidates, request)] = policy.asked
    assert Candidate("a", "here", 2, 9, ("m",)) == candidates[0]
    assert frozenset({"m"}) == candidates[0].multiplexed_model_ids
    assert ("Do", "s", "m") == (
        request.method_name,
        request.session_id,
        request.multiplexed_model_id,
    )


@pytest.mark.parity("G-76")
def test_a_policy_sees_what_replicas_say_of_themselves():
    facts = ReplicaFacts()
    policy = Policy(["b"])
    chooser = Chooser("mine", policy, facts.of)
    said = mesh_pb2.ReplicaView(
        replica_id="a", routing_stats_json='{"load":3}', replica_metadata_json='{"gpu":"x"}'
    )

    facts.take([said, mesh_pb2.ReplicaView(replica_id="b")])
    chooser(RAW, "", "", "")
    first, second = policy.asked[-1][0]
    assert ({"load": 3}, {"gpu": "x"}) == (first.routing_stats, first.replica_metadata)
    assert ({}, {}) == (second.routing_stats, second.replica_metadata)
    assert 2 == len({first, second})
    with pytest.raises(TypeError):
        first.routing_stats["load"] = 0  # type: ignore[index]  # what the next call sees too


@pytest.mark.parity("G-76")
def test_news_of_a_replica_replace_what_it_said_and_its_end_forgets_it():
    facts = ReplicaFacts()
    facts.take([mesh_pb2.ReplicaView(replica_id="a", routing_stats_json='{"load":1}')])
    facts.forget_unused()
    before = facts.of("a")
    facts.take([mesh_pb2.ReplicaView(replica_id="a", routing_stats_json='{"load":1}')])
    facts.forget_unused()
    assert before is facts.of("a")

    facts.take([mesh_pb2.ReplicaView(replica_id="a", routing_stats_json='{"load":2}')])
    assert {"load": 2} == facts.of("a")[0]
    facts.forget_unused()
    facts.forget_unused()
    assert ({}, {}) == facts.of("a")


@pytest.mark.parametrize("text", ["{", "[1]", "7", "[" * 9000 + "]" * 9000])
def test_what_is_no_json_object_is_nothing_and_is_told(text: str, caplog: pytest.LogCaptureFixture):
    facts = ReplicaFacts()
    facts.take([mesh_pb2.ReplicaView(replica_id="a", routing_stats_json=text)])

    assert {} == facts.of("a")[0]
    assert "what replica a says of itself is not a JSON object" in caplog.text


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([], []),
        (["b", "a"], ["b", "a"]),
        (lambda candidates: candidates[::-1], ["b", "a"]),
        (lambda candidates: [[candidates[1]], [candidates[0]]], ["b", "a"]),
        ([[], ["a"]], ["a"]),
    ],
)
@pytest.mark.parity("G-76")
def test_ranks_are_read_in_order(answer: object, expected: list[str]):
    assert expected == Chooser("mine", Policy(answer))(RAW, "", "", "")


@pytest.mark.parametrize("answer", [None, "a", ["c"], [3], {"a": 1}, lambda _: 1 / 0])
@pytest.mark.parity("G-76")
def test_a_failure_is_no_answer_and_one_line_a_minute(
    answer: object, caplog: pytest.LogCaptureFixture
):
    chooser = Chooser("mine", Policy(answer))
    with caplog.at_level(logging.WARNING):
        assert [[], [], []] == [chooser(RAW, "", "", "") for _ in range(3)]

    [record] = caplog.records
    assert "the policy mine failed" in record.getMessage()


@pytest.mark.parity("G-76")
def test_hooks_are_told_where_a_call_went_and_when_it_was_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[object, ...]] = []

    class Following(Policy):
        async def on_request_routed(self, request: RoutedRequest, *to: object) -> None:
            told.append((request, *to))

        def on_request_completed(self, replica_id: str, internal_request_id: str) -> None:
            told.append((replica_id, internal_request_id))
            raise LookupError("forgotten")

    chooser = Chooser("mine", Following())
    assert (True, False) == (chooser.listens, Chooser("mine", Policy()).listens)
    chooser.told(7, "a", ("/p", "s", "m"))
    with caplog.at_level(logging.WARNING):
        chooser.told(7, "a", None)

    assert [(RoutedRequest("/p", "s", "m", "7"), "a", None), ("a", "7")] == told
    assert "LookupError: forgotten" in caplog.text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("no.such.module:Policy", "No module named 'no'"),
        (f"{__name__}:Missing", "has no attribute 'Missing'"),
        (f"{__name__}:Unfinished", "a method choose"),
    ],
)
def test_what_is_no_policy_is_refused_with_the_reason(path: str, text: str):
    with pytest.raises(OptionError, match=rf"request_router_config.policy='{path}'.*{text}"):
        policy_class(path)


def test_a_policy_is_made_once_for_its_arguments(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pyserve.routing.policies._MAKING_WAIT_S", TIMEOUT_S)
    policies = Policies()
    found = mesh_pb2.PolicyClass(import_path=f"{__name__}:Policy", kwargs_json='{"answer": ["a"]}')
    ranker = policies.ranker_of(found, ())

    assert isinstance(ranker, _router.Ranker)
    policies.forget_unused()
    assert ranker is policies.ranker_of(found, ())
    policies.forget_unused()
    policies.forget_unused()
    assert ranker is not policies.ranker_of(found, ())
    assert policies.ranker_of(mesh_pb2.PolicyClass(), ()) is None
    broken = mesh_pb2.PolicyClass(import_path=f"{__name__}:Policy", kwargs_json='{"other": 1}')
    assert policies.ranker_of(broken, ()) is None
    assert "cannot be used here" in caplog.text


class Slow(Policy):
    """Is made when it may be."""

    may_begin = threading.Event()
    is_made = threading.Event()

    def __init__(self) -> None:
        assert self.may_begin.wait(TIMEOUT_S)
        super().__init__(["b"])
        self.is_made.set()


def test_a_policy_that_is_slow_to_make_keeps_nobody_waiting():
    chooser = Chooser("mine", None)
    assert [] == chooser(RAW, "", "", "")
    found = mesh_pb2.PolicyClass(import_path=f"{__name__}:Slow")
    assert isinstance(Policies().ranker_of(found, ()), _router.Ranker)
    assert not Slow.is_made.is_set()
    Slow.may_begin.set()
    assert Slow.is_made.wait(TIMEOUT_S)

    chooser.begin(Policy(["b"]))
    assert ["b"] == chooser(RAW, "", "", "")


def test_the_folder_of_a_driver_is_on_the_path_while_its_policy_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And again where the policy imports when it is asked; nobody else finds modules there."""
    (tmp_path / "policy_elsewhere.py").write_text(
        "import beside_policy\n"
        "class Policy:\n"
        "    def choose(self, candidates, request):\n"
        "        import needed_late\n"
        "        return needed_late.ANSWER\n"
    )
    (tmp_path / "beside_policy.py").write_text("")
    (tmp_path / "needed_late.py").write_text("ANSWER = ['b']\n")
    for name in ("policy_elsewhere", "beside_policy", "needed_late"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = list(sys.path)
    made: list[Chooser] = []
    monkeypatch.setattr(rust, "Ranker", lambda chooser, _told: made.append(chooser))
    found = mesh_pb2.PolicyClass(
        import_path="policy_elsewhere:Policy", sys_path=[str(tmp_path), *before]
    )

    Policies().ranker_of(found, ())
    wait_until(lambda: made[0].is_made, TIMEOUT_S)
    assert before == sys.path
    assert ["b"] == made[0](RAW, "/pkg.Service/Do", "", "")
    assert before == sys.path


def test_a_policy_that_exits_ends_nobody(caplog: pytest.LogCaptureFixture):
    class Exits:
        def choose(self, *_asked: object) -> None:
            raise SystemExit(3)

    assert [[], []] == [Chooser("mine", Exits())(RAW, "", "", "") for _ in range(2)]
    assert "SystemExit: 3" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class P(:", "raises SyntaxError"),
        ("X = undefined", "raises NameError"),
        ("raise SystemExit(0)", "raises SystemExit: 0"),
    ],
)
def test_a_module_that_cannot_be_run_is_refused_as_one_that_is_not_there(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "broken_policy.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=rf"request_router_config.policy='broken_.*{expected}"):
        policy_class("broken_policy:P")


class RayLike:
    """Gets its arguments later."""

    def initialize_state(self, weight: int) -> None:
        self.weight = weight

    def choose_replicas(self, *_asked: object) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("Policy", {"answer": []}, {"other": 1}),
        ("RayLike", {"weight": 1}, {}),
        ("RayLike", {"weight": 1}, {"weight": 1, "other": 2}),
    ],
)
def test_arguments_that_a_policy_does_not_take_are_refused(
    name: str, good: dict[str, object], bad: dict[str, object]
):
    check_policy(f"{__name__}:{name}", good)
    with pytest.raises(OptionError, match=rf"policy_kwargs=.* what .*{name} takes"):
        check_policy(f"{__name__}:{name}", bad)
