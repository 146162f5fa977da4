"""The answers of a call that streams them: iterated over on a loop or in a thread.

The call's state is held by its loop, the generator by the user: so a generator that is dropped
is noticed, and its call cancelled.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic

from pyserve.api.handles.answers import Answer
from pyserve.api.handles.inputs import Input
from pyserve.api.handles.objects import ObjectRef
from pyserve.api.handles.outgoing import OutgoingCall, check_may_block
from pyserve.api.handles.typing import Result_co
from pyserve.bridge import DONE, MESSAGE
from pyserve.errors import RequestCancelled, UsageError

if TYPE_CHECKING:
    from pyserve.api.handles.answers import Lease


class StreamCall(OutgoingCall):
    """A call whose answers wait here until they are taken.

    The native half bounds their number, and goes on when answers have been taken.
    """

    _closed = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._answers: deque[tuple[Answer, int]] = deque()

    def on_event(self, kind: int, _subject: object, payload: object) -> None:
        """Take one answer, or the end."""
        if self.settled:
            return
        if kind == MESSAGE:
            assert isinstance(payload, bytes)
            try:
                answer = Answer(payload, self.plan)
            except Exception as error:  # The mesh is gone: no answer may be left out.
                self._fail(error)
                return
            if answer.lease is not None and self.root is not None:
                self.root.add_ending(answer.lease)
            self._answers.append((answer, len(payload)))
            self.wake()
        elif kind == DONE:
            number = self.wire.code() if self.wire is not None else 0
            self.settle(self.status_error() if number else None)

    def _fail(self, error: Exception) -> None:
        if self.wire is not None:
            self.caller.cancel(self.wire, self.loop)
        self.settle(error)

    def is_ready(self) -> bool:
        """Tell whether there is an answer, or the end."""
        return self.settled or bool(self._answers)

    def settle(self, error: BaseException | None) -> None:
        """Record the end; a cancelled stream has no answers left."""
        if isinstance(error, RequestCancelled):
            self._answers.clear()
        super().settle(error)

    def take(self) -> Answer | None:
        """Take the next answer if there is one; any thread.

        Raises:
            Exception: The stream has ended so.
            StopIteration: It has ended well.
        """
        try:
            answer, size_bytes = self._answers.popleft()
        except IndexError:
            return None
        if self.wire is not None and not self.settled:
            self.caller.taken(self.wire, size_bytes, self.loop)
        return answer

    @property
    def is_over(self) -> bool:
        """Whether all answers have come and have been taken."""
        return self.settled and not self._answers


class DeploymentResponseGenerator(Input, Generic[Result_co]):
    """The results of ``handle.options(stream=True).remote(...)``, in order, as they are made.

    ``async for`` on any event loop, ``for`` in threads without one; by one consumer. The
    producer waits while its results are not taken. Closing or dropping it cancels the call.
    The error of the call is raised once, as by any generator; a cancellation at every step.
    """

    def __init__(self, call: StreamCall) -> None:
        self._call = call
        self._has_raised = False

    @property
    def request_id(self) -> str:
        """The id of the request, which is also in the logs of the replica."""
        return self._call.request_id

    def __aiter__(self) -> DeploymentResponseGenerator[Result_co]:
        return self

    async def __anext__(self) -> Result_co:
        answer = await self._next()
        if answer.lease is not None:
            return await answer.fetch()  # type: ignore[return-value]
        return answer.value()  # type: ignore[return-value]

    def __iter__(self) -> DeploymentResponseGenerator[Result_co]:
        check_may_block()
        return self

    def __next__(self) -> Result_co:
        answer = self._next_blocking()
        if answer.lease is not None:
            return answer.fetch_blocking(None)  # type: ignore[return-value]
        return answer.value()  # type: ignore[return-value]

    def cancel(self) -> None:
        """End the call; the method's generator is closed. From any thread."""
        self._call.cancel()

    def cancelled(self) -> bool:
        """Say whether ``cancel`` came before the end of the stream."""
        return self._call.is_cancel_requested and (
            not self._call.settled or isinstance(self._call.error, RequestCancelled)
        )

    async def aclose(self) -> None:
        """End the call, as ``cancel`` does; for ``contextlib.aclosing``."""
        self.cancel()

    def close(self) -> None:
        """End the call, as ``cancel`` does; for ``contextlib.closing``."""
        self.cancel()

    async def _to_object_ref_gen(self) -> ObjectRefGenerator:
        """Return an iterator of references to the answers, which need not come here."""
        return ObjectRefGenerator(self)

    def _to_object_ref_gen_sync(self) -> ObjectRefGenerator:
        """Return an iterator of references to the answers; from any thread."""
        return ObjectRefGenerator(self)

    async def _next(self) -> Answer:
        call = self._call
        while (answer := call.take()) is None:
            if call.is_over:
                raise self._last_words(StopAsyncIteration())
            await _Step(call)
        return answer

    def _next_blocking(self) -> Answer:
        call = self._call
        while (answer := call.take()) is None:
            if call.is_over:
                raise self._last_words(StopIteration())
            call.wait_blocking(None)
        return answer

    def _last_words(self, end: Exception) -> BaseException:
        """Return what the end of the call has to raise; ``end`` if it has done so already."""
        error = self._call.error
        if error is None or (self._has_raised and not isinstance(error, RequestCancelled)):
            return end
        self._has_raised = True
        return error.with_traceback(None)

    # --- never an input -----------------------------------------------------------------------

    async def arrive(self) -> None:
        """Refuse: a stream is not a value."""
        raise UsageError(_NO_VALUE)

    def lease(self) -> Lease | None:
        """Refuse: a stream is not a value."""
        raise UsageError(_NO_VALUE)

    def value(self) -> object:
        """Refuse: a stream is not a value."""
        raise UsageError(_NO_VALUE)

    def __reduce__(self) -> Any:
        raise UsageError(_NO_VALUE)

    def __del__(self) -> None:
        call = getattr(self, "_call", None)
        if call is not None and not call.settled:
            call.cancel()

    def __repr__(self) -> str:
        return f"<DeploymentResponseGenerator of {self._call.plan.name}>"


class ObjectRefGenerator:
    """References to the answers of a stream, in order; large values stay at their producer."""

    def __init__(self, stream: DeploymentResponseGenerator[Any]) -> None:
        self._stream = stream

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> ObjectRef[Any]:
        return ObjectRef.of_answer(await self._stream._next())  # noqa: SLF001  # of this module

    def __iter__(self) -> ObjectRefGenerator:
        check_may_block()
        return self

    def __next__(self) -> ObjectRef[Any]:
        return ObjectRef.of_answer(self._stream._next_blocking())  # noqa: SLF001

    def cancel(self) -> None:
        """End the call; from any thread."""
        self._stream.cancel()


class _Step:
    """Makes one wait for a call awaitable."""

    __slots__ = ("_call",)

    def __init__(self, call: StreamCall) -> None:
        self._call = call

    def __await__(self) -> Any:
        return self._call.wait_here()


_NO_VALUE = (
    "a stream cannot be passed to a call: pass its items, or references to them from "
    "`await stream._to_object_ref_gen()`"
)
