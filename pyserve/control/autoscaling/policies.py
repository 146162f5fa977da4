"""Asks users' policies, in threads, because what they do and how long it takes is unknown.

A policy is imported and made once, for the first question; if it raises or answers late, the number
of replicas stays as it is.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyserve import working_folder
from pyserve.api.code import import_attribute
from pyserve.config import AutoscalingPolicy
from pyserve.interrupts import FAILURES
from pyserve.observe.metrics.families import Tally

# As Ray Serve gives the statistics of a replica; a policy is asked no more until it has answered.
LATE_AFTER_S = 10.0

Answered = Callable[[object, str], None]


class PolicyAsker:
    """One policy.

    Args:
        policy: Its import path and its arguments.
        sys_path: Where its driver finds modules.

    Attributes:
        times: How long it took to answer.
    """

    def __init__(self, policy: AutoscalingPolicy, sys_path: Sequence[str]) -> None:
        self.policy = policy
        self._sys_path = sys_path
        self._decide: Callable[[object], object] | None = None
        self._asked_at: float | None = None
        self.times = Tally()

    @property
    def is_busy(self) -> bool:
        """Whether a question has no answer yet."""
        return self._asked_at is not None

    def is_late(self, now: float) -> bool:
        """Whether the answer is overdue."""
        return self._asked_at is not None and now - self._asked_at > LATE_AFTER_S

    def ask(self, question: object, now: float, answered: Answered) -> None:
        """Ask in a thread.

        Args:
            question: A context, or those of an application by ``DeploymentID``.
            now: Seconds, on any clock.
            answered: Called in that thread with the answer and ``""``, or with ``None`` and why
                there is none, which reads on after the policy's name.
        """
        self._asked_at = now

        def run() -> None:
            begun = time.monotonic()
            try:
                # It may import more when it is asked.
                with working_folder.importable(self._sys_path):
                    if self._decide is None:
                        self._decide = self._make()
                    answer, why = self._decide(question), ""
                if inspect.isawaitable(answer):
                    _close(answer)
                    answer, why = None, "is a coroutine function; write a plain one"
            except FAILURES as error:
                answer, why = None, f"raised {type(error).__name__}: {error}"
            self.times.add(time.monotonic() - begun)
            self._asked_at = None
            answered(answer, why)

        # One that hangs does not delay the end of the process.
        name = f"policy {self.policy.policy_function}"
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()

    def _make(self) -> Callable[[object], object]:
        path = str(self.policy.policy_function)
        if ":" not in path:
            path = ":".join(path.rsplit(".", 1))
        found: Any = import_attribute(path)
        if inspect.isclass(found):
            found = found(**self.policy.policy_kwargs)
        elif self.policy.policy_kwargs:
            raise TypeError("policy_kwargs are for the constructor of a class, and it is none")
        if not callable(found):
            raise TypeError(f"{path} cannot be called")
        decide: Callable[[object], object] = found
        return decide


def read_answer(answer: object) -> tuple[Any, Mapping[str, Any] | None]:
    """Return number and state; Ray Serve's policies return both, others the number alone.

    Raises:
        ValueError: It has neither form.
    """
    if not isinstance(answer, tuple):
        return answer, None
    if len(answer) != 2 or not isinstance(answer[1], Mapping | None):
        raise ValueError(f"returned {answer!r} instead of a number and a dict, its state")
    return answer


def read_answers(answer: object) -> tuple[dict[str, Any], dict[str, Mapping[str, Any] | None]]:
    """Return numbers and states by the names of deployments, of one that decides for all.

    Raises:
        ValueError: It is something else.
    """
    numbers, states = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    if not isinstance(numbers, Mapping) or not isinstance(states, Mapping | None):
        raise ValueError(f"returned {answer!r} instead of numbers and states by DeploymentID")
    return _by_name(numbers), _by_name(states or {})


def _by_name(found: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(getattr(key, "name", key)): value for key, value in found.items()}


def _close(answer: object) -> None:
    # A coroutine that never runs would warn about it.
    close = getattr(answer, "close", None)
    if close is not None:
        close()
