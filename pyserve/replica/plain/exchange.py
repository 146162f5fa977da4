"""Reads the requests of one plain method, and makes its answers.

The wire is described in ``pyserve.api.handles.framing``. Most calls of a method come with the
same codec and the same flags, so what these mean is worked out once and kept as a ``Door``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import msgpack
from grpc import StatusCode

from pyserve.api.handles.framing import (
    ALIGNED,
    ALIGNMENT_BYTES,
    HEADER,
    HELD_BYTES_MIN,
    ID,
    ID_BYTES,
    ID_END,
    REFERENCE,
    STREAM,
    VALUE,
    held_bytes_min,
    read_request,
)
from pyserve.errors import Abort, KindError, SerializationError, UsageError
from pyserve.serializers import codec, size_bytes

if TYPE_CHECKING:
    from pyserve.api.handles.calls import Message
    from pyserve.references import Descriptor, References
    from pyserve.serializers import Codec

_VALUE = bytes((VALUE,))
_ALIGNED = bytes((ALIGNED,)).ljust(ALIGNMENT_BYTES, b"\0")
_REFERENCE = bytes((REFERENCE,))
_ALIGNED_BYTES_MIN = 128  # An array of one number takes as much, its description included.
_FOREIGN = -1  # in the place of flags: the message is not framed


class IncomingCall(Protocol):
    """The part of ``_router.ServerCall`` that an exchange needs."""

    @property
    def subtype(self) -> str:
        """The name of the request's codec."""

    @property
    def framed(self) -> bool:
        """The caller is a handle."""

    def set_response_subtype(self, subtype: str) -> None:
        """Name the codec of the answer when it is another one."""


class CallContext(Protocol):
    """The part of a context that a plain call needs: of ``pyserve.aio``, or of a local call.

    Attributes:
        request_id: Of the request to be made; set before anybody asks for it.
        plain: False for calls that are not answered with one value.
    """

    request_id: str
    plain: bool

    @property
    def call(self) -> Any:
        """An ``IncomingCall``."""


class Door:
    """How one call is answered.

    Args:
        request_codec: What the request is read with.
        response_codec: What the result is written with.
        flags: Of the request's frame; ``None``: it is not framed, and neither are its answers.
        holding: Where large results are held if the flags ask for it.
        references: See the attribute.

    Attributes:
        codec: That of the request.
        references: The places of arguments that are held elsewhere, with descriptors of the values.
        streams: Whether the caller wants a stream; ``None``: it takes what comes.
    """

    __slots__ = (
        *("_encode", "_held_bytes_min", "_holding", "_prefix"),
        *("codec", "references", "streams"),
    )

    def __init__(
        self,
        request_codec: Codec,
        *,
        response_codec: Codec,
        flags: int | None = None,
        holding: References | None = None,
        references: tuple[tuple[int | str, object], ...] = (),
    ) -> None:
        self.codec = request_codec
        self.streams = None if flags is None else bool(flags & STREAM)
        self.references = references
        self._encode = response_codec
        self._prefix = None if flags is None else _VALUE
        self._holding = holding
        self._held_bytes_min = None if flags is None else held_bytes_min(flags)

    def encode(self, value: object) -> Message:
        """Return the message of one result.

        Raises:
            SerializationError: The codec cannot carry it.
            BackPressure: It is to be held, and there is no room.
        """
        parts = self._encode.encode(value)
        prefix = self._prefix
        if len(parts) == 1:
            (body,) = parts
            if type(body) is bytes and len(body) < HELD_BYTES_MIN:
                # One piece crosses to the native half at less cost than two.
                if prefix is None:
                    return body
                # Arrays of more than a few numbers are views of the message.
                return (prefix if len(body) < _ALIGNED_BYTES_MIN else _ALIGNED) + body
        if prefix is None:
            return parts
        holding, least = self._holding, self._held_bytes_min
        if holding is not None and least is not None and size_bytes(parts) >= least:
            descriptor = holding.hold(parts, self._encode.name)
            return [_REFERENCE, msgpack.packb(descriptor.to_wire())]
        return [_ALIGNED, *parts]


class Exchange:
    """Requests and answers of one method.

    Args:
        label: What messages call the method, e.g. ``Summarise.tokens``; also an attribute.
        streams: Whether the method answers with a stream; ``None``: its result will tell.
        references: Holds large results and fetches the arguments that others hold; without it
            results are sent whatever their size.
    """

    def __init__(self, label: str, *, streams: bool | None, references: References | None) -> None:
        self.label = label
        self._streams = streams
        self._references = references
        self._doors: dict[tuple[str, int], Door] = {}

    def read(self, message: bytes, context: CallContext) -> tuple[Door, list[Any], dict[str, Any]]:
        """Return how to answer, and the arguments.

        Raises:
            SerializationError: The message cannot be read.
            KindError: The caller wants a stream where there is none, or the reverse.
            Abort: The same, where the caller is no handle.
        """
        call = context.call
        if not call.framed:
            return self._read_foreign(message, call.subtype)
        flags = message[0] if message else HEADER
        if flags & HEADER or (flags & ID and len(message) < ID_END):
            return self._read_with_header(message, context)
        door = self._doors.get((call.subtype, flags)) or self._framed_door(call.subtype, flags)
        start = 1
        if flags & ID:
            start = ID_END
            context.request_id = message[1 : 1 + ID_BYTES].decode("ascii", "replace")
        args, kwargs = door.codec.decode_call(memoryview(message)[start:])
        return door, args, kwargs

    def _read_foreign(self, message: bytes, subtype: str) -> tuple[Door, list[Any], dict[str, Any]]:
        try:
            door = self._doors.get((subtype, _FOREIGN))
            if door is None:
                known = codec(subtype)
                if known.mesh_only:
                    # The native half refuses what says pickle; the registry knows all of them.
                    raise Abort(
                        StatusCode.UNIMPLEMENTED,
                        f"{self.label}: {subtype} is spoken only inside the mesh, use another "
                        f"codec",
                    )
                door = Door(known, response_codec=known)
                self._doors[subtype, _FOREIGN] = door
            args, kwargs = door.codec.decode_call(message)
        except UsageError as error:
            raise Abort(StatusCode.INVALID_ARGUMENT, f"{self.label}: {error}") from error
        return door, args, kwargs

    def _framed_door(self, subtype: str, flags: int) -> Door:
        self._check_stream(flags)
        known = codec(subtype)
        door = Door(known, response_codec=known, flags=flags, holding=self._references)
        self._doors[subtype, flags] = door
        return door

    def _read_with_header(
        self, message: bytes, context: CallContext
    ) -> tuple[Door, list[Any], dict[str, Any]]:
        try:
            flags, header, body = read_request(message)
        except ValueError as error:
            raise SerializationError(f"{self.label}: {error}") from error
        self._check_stream(flags)
        call = context.call
        known = codec(call.subtype)
        answer = known
        if header.response_codec and header.response_codec != known.name:
            answer = codec(header.response_codec)
            call.set_response_subtype(answer.name)
        if header.request_id:
            context.request_id = header.request_id
        door = Door(
            known,
            response_codec=answer,
            flags=flags,
            holding=self._references,
            references=header.references,
        )
        args, kwargs = known.decode_call(body)
        return door, args, kwargs

    def _check_stream(self, flags: int) -> None:
        wanted = bool(flags & STREAM)
        if wanted and self._streams is False:
            raise KindError(
                f"{self.label} answers with one value; leave .options(stream=True) out, or let "
                f"it yield"
            )
        if self._streams and not wanted:
            raise KindError(
                f"{self.label} yields, so it answers with a stream; call it with "
                f".options(stream=True) and remote, for a broadcast takes one value of each replica"
            )

    # --- arguments that others hold -----------------------------------------------------

    async def resolve(self, door: Door, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Put the referenced arguments in their places; all are fetched at once.

        Raises:
            ReferenceLost: A value was freed, or its holder is gone.
        """
        references = self._need_references()
        found = [(where, _descriptor(wire)) for where, wire in door.references]
        bodies = await asyncio.gather(*(references.fetch(each) for _, each in found))
        for (where, descriptor), body in zip(found, bodies, strict=True):
            _put(args, kwargs, where, codec(descriptor.codec).decode(body))

    def resolve_blocking(
        self, door: Door, args: list[Any], kwargs: dict[str, Any], timeout_s: float | None
    ) -> None:
        """Do what ``resolve`` does, on a thread of the pool."""
        references = self._need_references()
        for where, wire in door.references:
            descriptor = _descriptor(wire)
            body = references.fetch_blocking(descriptor, timeout_s)
            _put(args, kwargs, where, codec(descriptor.codec).decode(body))

    def _need_references(self) -> References:
        if self._references is None:
            raise UsageError(f"{self.label}: this process takes no arguments by reference")
        return self._references


def _descriptor(wire: object) -> Descriptor:
    from pyserve.references import Descriptor

    return Descriptor.from_wire(wire)


def _put(args: list[Any], kwargs: dict[str, Any], where: int | str, value: object) -> None:
    try:
        if isinstance(where, int):
            args[where] = value
        else:
            kwargs[where] = value
    except IndexError:
        raise SerializationError(
            f"argument {where} was sent by reference, but the call has {len(args)}"
        ) from None
