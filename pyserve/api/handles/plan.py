"""The common part of all calls of one handle, computed at the first of them.

A plan encodes arguments, hands down what a call inherits from the request that makes it, and
starts it: at once, or when its inputs are there.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from sys import modules
from typing import TYPE_CHECKING, Any, TypeVar

from pyserve.api.context import attached, call_settings
from pyserve.api.handles.calls import Pinned, Reservation, Route
from pyserve.api.handles.framing import (
    HOLD,
    HOLD_BULKY,
    ID,
    ID_BYTES,
    ID_PADDING,
    STREAM,
    RequestHeader,
    frame_request,
    held_bytes_min,
)
from pyserve.api.handles.inputs import Input, Use, arrived, encode_call, refusal_of_call
from pyserve.api.handles.options import checked_keys
from pyserve.api.handles.outgoing import OutgoingCall, running_loop
from pyserve.errors import SerializationError
from pyserve.observe.delays import PROCESS_DELAYS, asks
from pyserve.observe.traces import IS_SAMPLED
from pyserve.request import CURRENT, Request, new_request_id
from pyserve.serializers import codec, join, size_bytes

if TYPE_CHECKING:
    from pyserve.api.context import Mesh
    from pyserve.api.handles.calls import Caller, Message
    from pyserve.serializers import Parts
    from pyserve.types import DeploymentKey

Call = TypeVar("Call", bound=OutgoingCall)
References = tuple[tuple[int | str, object], ...]
DEFAULT_CODEC = "pickle"
# Smaller bodies are joined with the header before them: the native half copies them anyway, and one
# piece is cheaper to pass than two.
_JOINED_BYTES_MAX = 64 * 1024
# Types of most arguments, which are neither inputs nor large in themselves.
_SMALL = frozenset({int, float, bool, str, type(None), list, dict, tuple})
# Node and zone first, by the option ``_prefer_local_routing``.
_LOCALITIES = {None: None, True: (True, True), "zone": (False, True), False: (False, False)}


class Plan:
    """The fixed part of the calls of one handle. Immutable except for its caches.

    Attributes:
        name: The target as messages name it, ``app/Deployment.method``.
        route: What is needed to find the way to the replicas.
        streaming: The answer is a stream.
        response_codec: Reads the answers.
        holds: Large values may stay where they were made.
        place: Where calls have to go; ``None``: the router picks.
    """

    __slots__ = (
        "_answer_codec",
        "_cache_keys_of",
        "_caller",
        "_detached",
        "_flags",
        "_held_bytes_min",
        "_key",
        "_mesh",
        "_number",
        "_options",
        "_prefix",
        "_request_codec",
        "_timeout_s",
        "holds",
        "name",
        "place",
        "response_codec",
        "route",
        "streaming",
    )

    def __init__(
        self,
        key: DeploymentKey,
        options: Mapping[str, Any],
        place: Reservation | Pinned | None = None,
        *,
        number: int = 0,
    ) -> None:
        self._number = number
        get = options.get
        self._key = key
        self._options = options
        self.streaming = bool(get("stream", False))
        self.name = f"{key}.{get('method_name', '__call__')}"
        by_reference = get("_by_reference")
        if by_reference is None:
            by_reference = call_settings().by_reference
        self.holds = by_reference is not False
        self.place = place
        hold = _hold_flags(by_reference)
        self._held_bytes_min = held_bytes_min(hold)
        # The chunks of a stream are often handed on, so they stay from the lower bound on.
        self._flags = STREAM | hold & ~HOLD_BULKY if self.streaming else hold
        self._prefix = bytes((self._flags | ID,))
        self._timeout_s: float | None = get("timeout_s")
        self._detached = bool(get("detached", False))
        keys = get("cache_keys", ())
        self._cache_keys_of = keys if callable(keys) else None
        self._bind(attached())

    def _bind(self, mesh: Mesh) -> None:
        """Work out what depends on the mesh; handles may outlive one."""
        get = self._options.get
        key = self._key
        caller = mesh.caller(key)
        request = codec(get("request_serialization") or caller.serializer() or DEFAULT_CODEC)
        response = codec(get("response_serialization") or request.name)
        self._request_codec, self.response_codec = request, response
        self._answer_codec = "" if response.name == request.name else response.name
        route = Route(
            key=key,
            path=f"/{key.application}.{key.deployment}/{get('method_name', '__call__')}",
            codec=request.name,
            streaming=self.streaming,
            model_id=get("multiplexed_model_id", ""),
            session_id=get("session_id", ""),
            cache_keys=() if self._cache_keys_of else get("cache_keys", ()),
            priority=get("priority", 0),
            cost=get("cost"),
            idempotent=get("idempotent", False),
            caller=self._number,
            locality=_LOCALITIES[get("_prefer_local_routing")],
        )
        self.route = caller.prepare(route)
        self._caller = caller
        # Last: another thread that sees the mesh uses the attributes above.
        self._mesh = mesh

    def caller(self) -> Caller:
        """Return the way to the replicas.

        Raises:
            MeshNotFound: This process is in no mesh.
        """
        mesh = attached()
        if mesh is not self._mesh:
            self._bind(mesh)
        return self._caller

    def start(self, kind: type[Call], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Make one call, which starts now or when its inputs are there.

        Raises:
            MeshNotFound: This process is in no mesh.
            SerializationError: The codec cannot carry the arguments.
            UsageError: An argument cannot be passed to a call.
        """
        mesh = attached()
        if mesh is not self._mesh:
            self._bind(mesh)
        caller = self._caller
        request, timeout_s = self.inherited()
        request_id = new_request_id() if request is None else request.request_id
        loop = running_loop()
        call = kind(self, request_id, caller, loop or mesh.calls_loop())
        route = self.route
        if self._cache_keys_of is not None:
            keys = checked_keys("cache_keys", self._cache_keys_of(*args, **kwargs))
            route = call.route = caller.prepare(replace(route, cache_keys=keys))
        if PROCESS_DELAYS.is_on:
            call.begun_at = time.monotonic()
            call.is_watched = IS_SAMPLED.get() or asks(CURRENT.get())
        message = self._encoded(call, args, kwargs)
        if message is None:
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            call.begin_after(lambda: self._prepare(call, args, kwargs), deadline)
        elif loop is None:
            call.begin_soon(message, timeout_s)
        else:
            call.wire = caller.start(route, message, timeout_s, call, self.place)
        # Code that still runs on a loop after its request was cancelled has seen the cancellation:
        # it cleans up, or was shielded. Its calls go on.
        if (
            request is not None
            and not self._detached
            and (loop is None or not request.is_cancelled)
        ):
            request.add_child(call)
            if request.is_root:
                call.root = request
        return call

    def inherited(self) -> tuple[Request | None, float | None]:
        """Return the request that makes a call now, and the seconds that the call may take."""
        source = CURRENT.get()
        if source is None:
            return None, self._timeout_s
        request = source.request()
        timeout_s = self._timeout_s
        if self._detached or (request.is_cancelled and running_loop() is not None):
            return request, timeout_s
        if request.deadline is not None:
            left_s = max(0.0, request.deadline - time.monotonic())
            timeout_s = left_s if timeout_s is None else min(left_s, timeout_s)
        return request, timeout_s

    def _encoded(
        self, call: OutgoingCall, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Message | None:
        """Return the message of a call; ``None`` while some input is not there."""
        if RAY in modules and holds_any((*args, *kwargs.values())):
            return None
        for value in args:
            if type(value) not in _SMALL and (isinstance(value, Input) or self._is_bulky(value)):
                return None
        if kwargs:
            for value in kwargs.values():
                if isinstance(value, Input) or self._is_bulky(value):
                    return None
        if Use.has_begun:
            parts, nested = encode_call(self._request_codec, args, kwargs)
            if nested:
                if not all(each.is_here for each in nested):
                    return None
                call.inputs = nested
        else:
            try:
                parts = self._request_codec.encode_call(args, kwargs)
            except SerializationError as error:
                # In no variable: with the traceback it would keep this plan, and the place that it
                # may have, until the next collection.
                raise refusal_of_call(self._request_codec, args, kwargs, error) from error.__cause__
        if len(parts) == 1 and not self._answer_codec:
            body = parts[0]
            if type(body) is bytes and len(body) < _JOINED_BYTES_MAX:
                request_id = call.request_id
                if len(request_id) == ID_BYTES and request_id.isascii():
                    return self._prefix + request_id.encode() + ID_PADDING + body
        return self._message(parts, call.request_id)

    def _is_bulky(self, value: object) -> bool:
        """Tell whether an argument goes by reference, since that is less work than sending it."""
        size = len(value) if isinstance(value, bytes | bytearray) else getattr(value, "nbytes", 0)
        least = self._held_bytes_min
        if least is None or not isinstance(size, int) or size < least:
            return False
        return self._caller.is_near()

    async def _prepare(
        self, call: OutgoingCall, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Message:
        """Wait for the inputs of a call, and return its message."""
        from pyserve.api.handles.objects import put

        if RAY in modules:
            args, kwargs = await resolved(args, kwargs)
        values: dict[int | str, object] = dict(enumerate(args))
        values.update(kwargs)
        for where, value in values.items():
            if self._is_bulky(value):
                values[where] = put(value)
        places = [(each, value) for each, value in values.items() if isinstance(value, Input)]
        await arrived([value for _, value in places])
        references: list[tuple[int | str, object]] = []
        for where, value in places:
            lease = value.lease()
            if lease is None:
                values[where] = value.value()
            elif self.holds:
                values[where] = None
                references.append((where, lease.descriptor.to_wire()))
            else:
                values[where] = await lease.fetch()
        given = tuple(values[index] for index in range(len(args)))
        named = {name: values[name] for name in kwargs}
        parts, nested = encode_call(self._request_codec, given, named)
        while pending := [each for each in nested if not each.is_here]:
            await arrived(pending)
            parts, nested = encode_call(self._request_codec, given, named)
        # Whatever the callee is to fetch has to be there until the call has ended.
        call.inputs = (places, nested)
        return self._message(parts, call.request_id, tuple(references))

    def _message(self, parts: Parts, request_id: str, references: References = ()) -> Message:
        header = RequestHeader(
            request_id=request_id, response_codec=self._answer_codec, references=references
        )
        return _joined(frame_request(parts, self._flags, header))


def _hold_flags(by_reference: bool | None) -> int:
    """Return which arguments and results stay where they were made."""
    if by_reference is False:
        return 0
    return HOLD | HOLD_BULKY if by_reference is None else HOLD


def _joined(parts: Parts) -> Message:
    return join(parts) if size_bytes(parts) < _JOINED_BYTES_MAX else parts


# References of Ray itself (`ray.ObjectRef`) among the arguments of a call.
#
# As in Ray Serve they are resolved before the call is sent: arguments of their own, and those that
# lie in a list, a tuple or a dict that is an argument. Nothing here imports Ray: a process that has
# not done so has no such references.

RAY = "ray"
"""In ``sys.modules`` of those processes that may have some."""


def holds_any(values: Iterable[object]) -> bool:
    """Tell whether a reference is among the values, or lies in one of them."""
    kind = _kind()
    return any(isinstance(each, kind) for value in values for each in (value, *_within(value)))


async def resolved(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with values in the places of references.

    Raises:
        Exception: What the task of the first reference that has none has raised.
    """
    kind = _kind()
    places = [*args, *kwargs.values()]
    found = {
        id(each): each
        for value in places
        for each in (value, *_within(value))
        if isinstance(each, kind)
    }
    if not found:
        return args, kwargs
    answers = await asyncio.gather(*map(_value, found.values()))
    values = dict(zip(found, answers, strict=True))
    given = [_replaced(value, values) for value in places]
    return tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :], strict=True))


async def _value(reference: Any) -> Any:
    return await reference


def _replaced(value: Any, values: dict[int, Any]) -> Any:
    if id(value) in values:
        return values[id(value)]
    if not any(id(each) in values for each in _within(value)):
        return value
    if type(value) is dict:
        return {key: values.get(id(each), each) for key, each in value.items()}
    return type(value)(values.get(id(each), each) for each in value)


def _within(value: object) -> Iterator[object]:
    if type(value) in (list, tuple):
        yield from value  # type: ignore[misc]  # it is one of the two
    elif type(value) is dict:
        yield from value.values()


def _kind() -> Any:
    # One that is being imported does not have it yet.
    return getattr(sys.modules[RAY], "ObjectRef", ())
