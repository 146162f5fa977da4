"""A policy of the user's, asked in a thread: where it is imported from."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from pyserve.config import AutoscalingPolicy
from pyserve.control.autoscaling.policies import PolicyAsker

TIMEOUT_S = 30.0


def test_the_folder_of_a_driver_is_on_the_path_while_its_policy_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for modules that it imports when asked; other code cannot import them."""
    (tmp_path / "scaling_elsewhere.py").write_text(
        "def decide(context):\n    import needed_late\n    return needed_late.NUMBER\n"
    )
    (tmp_path / "needed_late.py").write_text("NUMBER = 3\n")
    for name in ("scaling_elsewhere", "needed_late"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = list(sys.path)
    policy = AutoscalingPolicy(policy_function="scaling_elsewhere:decide")
    asker = PolicyAsker(policy, [str(tmp_path), *before])

    for _ in range(2):
        assert (3, "") == ask(asker)
        assert before == sys.path


def ask(asker: PolicyAsker) -> tuple[object, str]:
    answers: list[tuple[object, str]] = []
    answered = threading.Event()

    def take(answer: object, why: str) -> None:
        answers.append((answer, why))
        answered.set()

    asker.ask(None, 0.0, take)
    assert answered.wait(TIMEOUT_S)
    [found] = answers
    return found
