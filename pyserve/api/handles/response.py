"""The answer of a call that has one: awaited, waited for, cancelled, or passed on."""

from __future__ import annotations

import asyncio
import time
from asyncio import get_running_loop
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from pyserve.api.handles.answers import UNREAD, lease_of
from pyserve.api.handles.framing import REFERENCE, answer_body
from pyserve.api.handles.inputs import Input
from pyserve.api.handles.options import checked_wait
from pyserve.api.handles.outgoing import OutgoingCall, check_may_block
from pyserve.api.handles.typing import Result_co
from pyserve.bridge import DONE
from pyserve.errors import KindError, RequestCancelled, RequestTimeout, UsageError

if TYPE_CHECKING:
    from pyserve.api.handles.answers import Lease
    from pyserve.api.handles.objects import ObjectRef

_REFERENCE = bytes((REFERENCE,))


class DeploymentResponse(OutgoingCall, Input, Generic[Result_co]):
    """The result of ``handle.remote(...)``, which is on its way already.

    Await it from any event loop, or take it with ``result`` from any thread. Passed as an
    argument of another call it is resolved first, without a detour if it is large. Dropping it
    does not cancel the call.
    """

    # The answer: as it came, decoded, or who holds it.
    _raw: bytes | None = None
    _value: object = UNREAD
    _lease: Lease | None = None

    def __await__(self) -> Generator[Any, None, Result_co]:
        if not self.settled:
            # `wait_here` for the most frequent case, without a generator of its own.
            loop = get_running_loop()
            if loop is self.loop and self._waiter is None:
                future: asyncio.Future[None] = loop.create_future()
                self._waiter = future
                try:
                    yield from future
                except asyncio.CancelledError:
                    self._give_up(future, None)
                    raise
            while not self.settled:
                yield from self.wait_here()
        if self._lease is not None and self._value is UNREAD and self.error is None:
            self._value = yield from self._lease.fetch().__await__()
        return self.value()  # type: ignore[return-value]

    def result(self, timeout_s: float | None = None) -> Result_co:
        """Block until the answer is there, and return it.

        Args:
            timeout_s: How many seconds to wait; the call itself goes on after them.
                ``None``: as long as it takes, see ``handle.options(timeout_s=...)``;
                0: only an answer that is here already.

        Raises:
            WrongMoment: A loop runs in this thread: write ``await`` there.
            OptionError: ``timeout_s`` is no number of seconds.
            RequestTimeout: The answer has not come in time.
            Exception: What the method raised, or the mesh instead of it.
        """
        check_may_block()
        timeout_s = checked_wait("result: timeout_s", timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.settled:
            left_s = None if deadline is None else deadline - time.monotonic()
            if not self.wait_blocking(left_s):
                raise RequestTimeout(
                    f"{self.plan.name}: no answer within {timeout_s:g} s; the call goes on until "
                    f".cancel(), or set its deadline with handle.options(timeout_s=...)"
                )
        if self._lease is not None and self._value is UNREAD and self.error is None:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._value = self._lease.fetch_blocking(left_s)
        return self.value()  # type: ignore[return-value]

    def cancelled(self) -> bool:
        """Say whether ``cancel`` came before the answer."""
        return self.is_cancel_requested and (
            not self.settled or isinstance(self.error, RequestCancelled)
        )

    def done(self) -> bool:
        """Say whether the call has ended."""
        return self.settled

    async def _to_object_ref(self) -> ObjectRef[Result_co]:
        """Return a reference to the answer, which may be passed on before it is there."""
        return self._to_object_ref_sync()

    def _to_object_ref_sync(self) -> ObjectRef[Result_co]:
        """Return a reference to the answer; from any thread."""
        from pyserve.api.handles.objects import ObjectRef

        return ObjectRef.of_response(self)

    # --- as a receiver of events ------------------------------------------------------------

    def on_event(self, kind: int, _subject: object, payload: object) -> None:
        """Take the end of the call."""
        if kind != DONE or self.settled:
            return
        if payload is None:
            self.settle(self.status_error())
            return
        if payload[:1] == _REFERENCE:  # type: ignore[index]  # It is bytes.
            # Recognized at once: it must be given back even if the value is never read.
            try:
                self._lease = lease_of(payload)  # type: ignore[arg-type]
            except Exception as error:  # The mesh is gone. No other event will come.
                self.settle(error)
                return
            if self.root is not None:
                self.root.add_ending(self._lease)
        else:
            self._raw = payload  # type: ignore[assignment]
        self.inputs = None
        self.settled = True
        if self.begun_at:
            self.keep_delay(None)
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
        if self._watchers is not None:
            self.wake_watchers()

    # --- as an input of another call --------------------------------------------------------

    async def arrive(self) -> None:
        """Wait for the end of the call; see ``Input``."""
        while not self.settled:
            await self.wait_quietly()
        if self.error is not None:
            raise self.error.with_traceback(None)

    def lease(self) -> Lease | None:
        """Return who holds the answer, if it stayed at its producer; see ``Input``."""
        return self._lease

    def value(self) -> object:
        """Return an answer that is here; see ``Input``.

        Raises:
            SerializationError: It is not of the codec that it should be of.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self._value is UNREAD:
            raw = self._raw
            assert raw is not None, "the answer is held elsewhere"
            self._value = self.plan.response_codec.decode(answer_body(raw))
            self._raw = None
        return self._value

    if not TYPE_CHECKING:  # A checker says by itself that there is nothing to iterate over.

        def __aiter__(self) -> NoReturn:
            raise KindError(
                f"{self.plan.name} was called for one answer, which is awaited; for a stream write "
                f"`async for item in handle.method.options(stream=True).remote(...)`"
            )

        def __iter__(self) -> NoReturn:
            raise KindError(
                f"{self.plan.name} was called for one answer, which result() waits for; for a "
                f"stream write `for item in handle.method.options(stream=True).remote(...)`"
            )

    def __reduce__(self) -> Any:
        raise UsageError(
            "a DeploymentResponse cannot travel inside of another value: pass it as an argument "
            "of its own (as *responses if there are many), await it first, or pass "
            "`await response._to_object_ref()`"
        )

    def __repr__(self) -> str:
        state = "pending" if not self.settled else "failed" if self.error else "done"
        return f"<DeploymentResponse of {self.plan.name}, {state}, request {self.request_id}>"
