"""A line for each call at an ingress, made of what the native side keeps of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import grpc

from pyserve.observe.logs.access import Pace, access_record
from pyserve.observe.logs.kept import own_handlers, takes_info
from pyserve.observe.logs.sink import SinkHandler

if TYPE_CHECKING:
    from pyserve.bridge import rust
    from pyserve.config import LogSettings

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


# How often calls are taken if lines go to files only; the buffer holds those of one period.
_PERIOD_S = 1.0


class KeptCalls(Protocol):
    """The part of ``CallRecords`` that is used here."""

    def listen(
        self, callback: Callable[[Sequence[rust.CallRecord]], object], *, is_lazy: bool
    ) -> Callable[[], None]:
        """Call ``callback`` with the records; return what ends that."""

    def take_now(self) -> int:
        """Hand over everything that waits."""

    def keep_all(self, is_on: bool) -> None:
        """Keep every call, not only the notable ones."""


class IngressAccessLog:
    """Lines for the calls of an ingress, until ``close``; they are taken in parts.

    Unless it was asked for, it pauses in seconds with more calls than anybody reads.

    Args:
        records: Where the calls come from.
        calls: Counts all calls.
        settings: How the process logs.
    """

    def __init__(self, records: KeptCalls, calls: Callable[[], int], settings: LogSettings) -> None:
        self._records = records
        self._is_asked = settings.access_log is True
        self._names_clients = settings.client_addresses
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._pace = None if self._is_asked else Pace(self._switch, calls, self._loop)
        # A log that was asked for has no rate limit, and more calls may end in a period than fit.
        self._end = records.listen(self._write, is_lazy=not self._is_asked)
        self._switch(True)

    def close(self) -> None:
        """Write the last ones, and no more."""
        if self._pace is not None:
            self._pace.close()
        self._records.take_now()
        self._switch(False)
        self._end()

    def _switch(self, is_on: bool) -> None:
        self._records.keep_all(is_on)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_on and not self._is_asked:
            self._timer = self._loop.call_later(_PERIOD_S, self._look)

    def _look(self) -> None:
        # Nothing announces a call, since that would cost each of them.
        self._timer = self._loop.call_later(_PERIOD_S, self._look)
        self._records.take_now()

    def _write(self, calls: Sequence[rust.CallRecord]) -> None:
        if self._pace is not None:
            if self._pace.is_paused:  # These are kept for others: they are sampled, say.
                return
            calls = calls[: self._pace.note(len(calls))]
        records = [self._record(call) for call in calls]
        for handler in own_handlers():
            if isinstance(handler, SinkHandler):
                handler.write(records, everywhere=self._is_asked)

    def _record(self, call: rust.CallRecord) -> logging.LogRecord:
        attempts = call.attempts
        is_http = call.http_status != 0
        return access_record(
            ended_at=(call.start_unix_ns + call.duration_ns) / 1e9,
            request_id=call.request_id,
            label=_label(call),
            status=str(call.http_status) if is_http else _CODES.get(call.code, str(call.code)),
            duration_s=call.duration_ns / 1e9,
            attempts=max(len(attempts), 1),
            replica=attempts[-1][0] if attempts else "",
            trace_id=call.trace_id.hex() if call.is_sampled else "",
            client=call.peer if self._names_clients else "",
            door=call.door,
            reason=call.reason,
            answered_by=call.answered_by,
            application=call.application,
            deployment=call.deployment,
        )


def _label(call: rust.CallRecord) -> str:
    return f"{call.method.partition(' ')[0]} {call.path}" if call.path else call.method


def begin_access_log(
    records: KeptCalls, calls: Callable[[], int], settings: LogSettings
) -> IngressAccessLog | None:
    """Write lines if they are wanted and have somewhere to go; ``None``: they are not."""
    wanted = settings.access_log
    has_place = wanted is True or settings.directory is not None
    if wanted is False or not has_place or not takes_info():
        return None
    return IngressAccessLog(records, calls, settings)
