"""Whether this process traces; everything that needs OpenTelemetry is loaded when it does."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.config.telemetry import TracingSettings
    from pyserve.observe.traces.shared_work import BatchTraces, LoadTraces, StepTraces
    from pyserve.observe.traces.spans import Spans

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """Who makes the spans.

    Attributes:
        service: What ``service.name`` is where the environment names no other.
        instance: Unique among the processes of that service.
        application, deployment, replica: What a replica runs; empty elsewhere.
        node: The machine.
    """

    service: str
    instance: str
    application: str = ""
    deployment: str = ""
    replica: str = ""
    node: str = ""


class Tracing:
    """The tracing of this process.

    Objects that serve many calls read ``spans`` only once, when they are made. So tracing must be
    started before; in a replica that is before user code is loaded.

    Attributes:
        spans: Makes the spans; ``None`` while there are none.
        sampling_ratio: Of the calls that begin a trace here.
    """

    def __init__(self) -> None:
        self.spans: Spans | None = None
        self.sampling_ratio = 0.0

    def start(self, settings: TracingSettings, identity: ProcessIdentity) -> None:
        """Make spans from now on, if the settings say so. Later calls have no effect.

        If the exporter cannot be made, that is logged and nothing is traced: a mesh must not stop
        serving because it cannot be observed.
        """
        if not settings.enabled or self.spans is not None:
            return
        try:
            from pyserve.observe.traces.exporting import open_spans

            self.spans = open_spans(settings, identity)
            self.sampling_ratio = settings.sampling_ratio
        except Exception:
            # A user's exporter may raise anything.
            _LOGGER.exception("this process makes no spans: its exporter cannot be made")

    def batches(self, label: str) -> BatchTraces | None:
        """Return the maker of spans for one function's batches, ``None`` without tracing."""
        if self.spans is None:
            return None
        from pyserve.observe.traces.shared_work import BatchTraces

        return BatchTraces(self.spans, label)

    def loads(self, label: str) -> LoadTraces | None:
        """Return the maker of spans for one loader's loads, ``None`` without tracing."""
        if self.spans is None:
            return None
        from pyserve.observe.traces.shared_work import LoadTraces

        return LoadTraces(self.spans, label)

    def steps(self, label: str) -> StepTraces | None:
        """Return the maker of spans for one class's steps, ``None`` without tracing."""
        if self.spans is None:
            return None
        from pyserve.observe.traces.shared_work import StepTraces

        return StepTraces(self.spans, label)

    def leave_to_parent(self) -> None:
        """Make no more spans: this is a forked child, whose parent has the exporter's threads."""
        if self.spans is not None:
            self.spans.sources.leave_to_parent()
        self.spans = None

    def stop(self, timeout_s: float = 2.0) -> None:
        """Export what is left, for ``timeout_s`` at most, and make no more spans."""
        spans, self.spans = self.spans, None
        if spans is not None:
            spans.close(timeout_s)


PROCESS_TRACING = Tracing()
"""The tracing of this process, global because decorators and native callbacks make spans."""
os.register_at_fork(after_in_child=PROCESS_TRACING.leave_to_parent)
