"""References to values: ``ObjectRef``, ``get`` and ``put``.

A reference as an argument of its own is resolved before the call; inside of a list or an object
it stays a reference, and travels as one. Small values travel inside of their reference.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pyserve.api.context import attached
from pyserve.api.handles.answers import Lease
from pyserve.api.handles.framing import HELD_BYTES_MIN
from pyserve.api.handles.inputs import Input, Use, note
from pyserve.api.handles.options import checked_wait
from pyserve.api.handles.outgoing import check_may_block
from pyserve.api.handles.response import DeploymentResponse
from pyserve.api.handles.typing import Result_co
from pyserve.errors import RequestTimeout, UsageError
from pyserve.serializers import codec, join, size_bytes

if TYPE_CHECKING:
    from pyserve.api.handles.answers import Answer
    from pyserve.serializers import Parts

Value = TypeVar("Value")

# What references inside of values are pickled as, whatever the codec of the call.
_CODEC = "pickle"
_ABSENT: object = object()


class ObjectRef(Input, Generic[Result_co]):
    """Stands for a value that is somewhere in the mesh, or will be.

    Await it, or take it with ``pyserve.get``. The value is kept as long as this object, or at
    its longest 60 s after its last use; returning a reference from a method hands it over.
    """

    __slots__ = ("__weakref__", "_body", "_lease", "_response", "_value")

    def __init__(
        self,
        *,
        response: DeploymentResponse[Any] | None = None,
        lease: Lease | None = None,
        body: tuple[bytes, str] | None = None,
        value: object = _ABSENT,
    ) -> None:
        Use.has_begun = True
        self._response = response
        self._lease = lease
        self._body = body
        self._value = value

    @classmethod
    def of_response(cls, response: DeploymentResponse[Any]) -> ObjectRef[Any]:
        """Return a reference to the answer of a call, which need not be there yet."""
        return cls(response=response)

    @classmethod
    def of_answer(cls, answer: Answer) -> ObjectRef[Any]:
        """Return a reference to one answer of a stream."""
        if answer.lease is not None:
            return cls(lease=answer.lease)
        body = answer.body()
        return cls(value=answer.value()) if body is None else cls(body=body)

    @property
    def is_here(self) -> bool:
        """Whether the value has been made, here or elsewhere."""
        return self._response is None or self._response.settled

    def __await__(self) -> Generator[Any, None, Result_co]:
        response = self._response
        if response is not None:
            result: Result_co = yield from response.__await__()
            return result
        if self._value is _ABSENT and self._lease is not None:
            self._value = yield from self._lease.fetch().__await__()
        return self.value()  # type: ignore[return-value]

    def get(self, timeout_s: float | None = None) -> Result_co:
        """Block until the value is there, and return it; see ``pyserve.get``."""
        check_may_block()
        timeout_s = checked_wait("get: timeout_s", timeout_s)
        if self._response is not None:
            result: Result_co = self._response.result(timeout_s)
            return result
        if self._value is _ABSENT and self._lease is not None:
            self._value = self._lease.fetch_blocking(timeout_s)
        return self.value()  # type: ignore[return-value]

    # --- as an input of a call ----------------------------------------------------------------

    async def arrive(self) -> None:
        """Wait until the value was made; see ``Input``."""
        if self._response is not None:
            await self._response.arrive()

    def lease(self) -> Lease | None:
        """Return who holds the value; a large one that was ``put`` is held from now on."""
        if self._response is not None:
            return self._response.lease()
        if self._lease is None and self._body is None:
            parts = codec(_CODEC).encode(self._value)
            if size_bytes(parts) >= HELD_BYTES_MIN:
                self._lease = _held(parts)
            else:
                self._body = (join(parts), _CODEC)
        return self._lease

    def value(self) -> object:
        """Return a value that is here; see ``Input``."""
        if self._response is not None:
            return self._response.value()
        if self._value is _ABSENT:
            assert self._body is not None, "the value is held elsewhere"
            body, name = self._body
            self._value = codec(name).decode(body)
        return self._value

    # --- inside of another value ----------------------------------------------------------------

    def __reduce__(self) -> Any:
        if note(self):
            return _read, (self._to_wire(hands_over=False) if self.is_here else None,)
        if not self.is_here:
            raise UsageError(
                "a reference inside of an answer needs its value: await the call before it "
                "returns its reference"
            )
        return _read, (self._to_wire(hands_over=True),)

    def _to_wire(self, *, hands_over: bool) -> object:
        lease = self.lease()
        if lease is None:
            if self._body is None:
                parts = codec(_CODEC).encode(self.value())
                self._body = (join(parts), _CODEC)
            return self._body
        if hands_over:
            lease = self._handed_over(lease)
        return lease.descriptor.to_wire(), hands_over

    def _handed_over(self, lease: Lease) -> Lease:
        if self._value is not _ABSENT and self._response is None:
            # The value is in this process, so each receiver of the answer gets its own lease.
            lease = _held(codec(_CODEC).encode(self._value))
        lease.is_owner = False
        return lease

    def __repr__(self) -> str:
        if self._response is not None:
            return f"<ObjectRef of {self._response!r}>"
        if self._lease is not None:
            return f"<ObjectRef to {self._lease.descriptor.size_bytes} bytes>"
        return "<ObjectRef to a value of this process>"


def put(value: Value) -> ObjectRef[Value]:
    """Return a reference to a value of this process, which is not copied until it is passed on.

    Args:
        value: Must not be changed any more.
    """
    return ObjectRef(value=value)


@overload
def get(
    references: ObjectRef[Value] | DeploymentResponse[Value], *, timeout: float | None = None
) -> Value: ...
@overload
def get(
    references: Sequence[ObjectRef[Value] | DeploymentResponse[Value]],
    *,
    timeout: float | None = None,
) -> list[Value]: ...
def get(references: Any, *, timeout: float | None = None) -> Any:
    """Block until values are there, and return them.

    Args:
        references: One reference or response, or a sequence of them.
        timeout: Seconds to wait for all of them; ``None``: as long as it takes.

    Raises:
        WrongMoment: A loop runs in this thread: write ``await reference`` there.
        RequestTimeout: Not all values have come in time.
        Exception: What the call of the first failing one raised.
    """
    check_may_block()
    timeout = checked_wait("pyserve.get: timeout", timeout)
    deadline = None if timeout is None else time.monotonic() + timeout

    def one(reference: object) -> object:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if isinstance(reference, ObjectRef):
            return reference.get(left_s)
        if isinstance(reference, DeploymentResponse):
            return reference.result(left_s)
        raise UsageError(
            f"pyserve.get takes references and responses, one or a list of them, not {reference!r}"
        )

    if isinstance(references, list | tuple):
        return [one(each) for each in references]
    return one(references)


def _held(parts: Parts) -> Lease:
    references = attached().references
    return Lease(references.hold(parts, _CODEC), references)


def _read(wire: Any) -> ObjectRef[Any]:
    from pyserve.references import Descriptor

    if wire is None:
        raise RequestTimeout("a reference was sent before its value was there")
    first, second = wire
    if isinstance(first, bytes):
        return ObjectRef(body=(first, second))
    lease = Lease(Descriptor.from_wire(first), attached().references, is_owner=second)
    return ObjectRef(lease=lease)
