"""The spans of continuously batched classes: one of each call, and one of each step.

A step has no single caller. Its span is a child of its first traced call, so that it is in a trace
at all, and links to all of them. They do not link back: a call may share more steps than a span may
have links (128 by the SDK's default).
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach

from pyserve.observe.traces import IS_SAMPLED
from pyserve.observe.traces.spans import Spans, current, end, left

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class SteppedCall:
    """The span of one traced call, from its arrival to its end. For any thread.

    Args:
        span: It.

    Attributes:
        steps: In which the call has taken part.
    """

    __slots__ = ("span", "steps")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.steps = 0

    def note(self, event: str) -> None:
        """Add an event of this moment: ``admitted``, ``first value``, ``parked``, ...."""
        self.span.add_event(event)

    def end(self, values: int, error: BaseException | None) -> None:
        """End the span; ``values``: what the caller was sent."""
        said: dict[str, str | int] = {"pyserve.steps": self.steps, "pyserve.values": values}
        if error is not None:
            said["error.type"] = type(error).__qualname__
        end(self.span, said)


class RunningStep:
    """The span of a step that runs, in whose context it does.

    Args:
        span: It.
    """

    __slots__ = ("_is_sampled", "_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token = attach(trace.set_span_in_context(span, Context()))
        self._is_sampled = IS_SAMPLED.set(True)

    def end(self, error: BaseException | None) -> None:
        """End the span, in the context where it has begun; ``error``: what the step has raised."""
        IS_SAMPLED.reset(self._is_sampled)
        detach(self._token)
        end(self._span, {} if error is None else {"error.type": type(error).__qualname__})


class StepTraces:
    """Makes the spans of one class.

    Args:
        spans: Of this process.
        label: What messages call the class.
    """

    def __init__(self, spans: Spans, label: str) -> None:
        self._spans = spans
        self._label = label

    def call(self) -> SteppedCall | None:
        """Begin the span of the call that this code makes; ``None``: it is not traced."""
        if not IS_SAMPLED.get():
            return None
        said = {"pyserve.step.function": self._label}
        return SteppedCall(self._spans.begin(f"steps {self._label}", current(), attributes=said))

    def begin(
        self, members: Sequence[SteppedCall], *, size: int, key: object
    ) -> RunningStep | None:
        """Begin the span of a step in the context of this code.

        Args:
            members: The traced calls in it.
            size: How many calls there are in it.
            key: What they have in common; ``None``: the class has no keys.

        Returns:
            What ends it; ``None``: no call in it is traced.
        """
        if not members:
            return None
        said: dict[str, str | int] = {
            "pyserve.step.function": self._label,
            "pyserve.step.size": size,
        }
        if key is not None:
            said["pyserve.step.key"] = str(key)
        links = []
        for member in members:
            member.steps += 1
            links.append(member.span)
        name = f"step {self._label}"
        return RunningStep(self._spans.begin(name, links[0], links=links, attributes=said))

    def leave(self, context: contextvars.Context) -> None:
        """Let code that will run in ``context``, a copy of a call's, belong to no call."""
        left(context)
