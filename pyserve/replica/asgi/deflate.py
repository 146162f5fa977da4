"""Compressed messages of WebSockets, permessage-deflate of RFC 7692, as an extension of wsproto.

wsproto's own extension treats a control frame between two fragments as the end of their message,
and raises for parameters that are not numbers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

_NAME = "permessage-deflate"
# A parameter of RFC 6455, 9.1. What stands in quotes has to be a token as well, so that a comma
# or a semicolon never does.
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_QUOTED_PAIR = re.compile(rb"\\(.)", re.DOTALL)
_BITS = re.compile(rb"[89]|1[0-5]")
_BITS_MAX = 15
# zlib makes no stream of 8 bits without a head of its own, and takes 9 for it silently where it
# is old enough (its issue 171).
_BITS_MIN = 9
# A sender leaves this out at the end of a message (RFC 7692, 7.2.1).
_TAIL = b"\x00\x00\xff\xff"


class Deflate(Extension):
    """The negotiated compression.

    Args:
        bits: log2 of the client's and of our window; None: not named, which means 15.
        forgets: whether the client, and whether we, begin each message with an empty window.
    """

    name = _NAME

    def __init__(self, bits: tuple[int | None, int | None], forgets: tuple[bool, bool]) -> None:
        self._bits, self._forgets = bits, forgets
        # Made when they are needed: together they take a quarter of a megabyte.
        self._inflater: zlib._Decompress | None = None
        self._deflater: zlib._Compress | None = None
        self._is_control = False
        self._is_compressed = False  # The current message, by its first frame.

    def enabled(self) -> bool:
        """Be enabled: it exists only after a negotiation."""
        return True

    def offer(self) -> bool:
        """Offer nothing in handshakes of clients."""
        return False

    @property
    def answer(self) -> bytes:
        """The value of Sec-WebSocket-Extensions in the handshake's answer."""
        parts, sides = [_NAME], ("client", "server")
        for side, forgets in zip(sides, self._forgets, strict=True):
            parts += [f"{side}_no_context_takeover"] * forgets
        for side, bits in zip(sides, self._bits, strict=True):
            parts += [] if bits is None else [f"{side}_max_window_bits={bits}"]
        return "; ".join(parts).encode()

    # --- what comes ---------------------------------------------------------------------

    def frame_inbound_header(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002  # wsproto gives it
        opcode: Opcode,
        rsv: RsvBits,
        payload_length: int,  # noqa: ARG002  # as above
    ) -> CloseReason | RsvBits:
        """Note the frame whose payload follows. An incomplete header is passed here again later."""
        self._is_control = opcode.iscontrol()
        may_say = not self._is_control and opcode is not Opcode.CONTINUATION
        if may_say:
            self._is_compressed = rsv.rsv1
        return RsvBits(may_say, False, False)

    def frame_inbound_payload_data(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002  # wsproto gives it
        data: bytes,
    ) -> bytes | CloseReason:
        """Return a piece of a payload, decompressed."""
        return self._inflate(data) if self._is_compressed and not self._is_control else data

    def frame_inbound_complete(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002  # wsproto gives it
        fin: bool,
    ) -> bytes | CloseReason | None:
        """Return the decompressed rest at the end of a message."""
        if self._is_control or not fin or not self._is_compressed:
            return None
        rest = self._inflate(_TAIL)
        if self._forgets[0]:
            self._inflater = None
        return rest

    def _inflate(self, data: bytes) -> bytes | CloseReason:
        inflater = self._inflater or self._new_inflater()
        try:
            parts = [inflater.decompress(data)]
            while inflater.eof:  # A block that calls itself the last one may come (7.2.3.4).
                data, inflater = inflater.unused_data, self._new_inflater()
                parts.append(inflater.decompress(data))
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        self._inflater = inflater
        return b"".join(parts)

    def _new_inflater(self) -> zlib._Decompress:
        return zlib.decompressobj(-max(self._bits[0] or _BITS_MAX, _BITS_MIN))

    # --- what is sent -------------------------------------------------------------------

    def frame_outbound(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002  # wsproto gives it
        opcode: Opcode,
        rsv: RsvBits,
        data: bytes,
        fin: bool,
    ) -> tuple[RsvBits, bytes]:
        """Return the reserved bits and the payload of a frame."""
        if opcode.iscontrol():
            return rsv, data
        deflater = self._deflater or zlib.compressobj(wbits=-(self._bits[1] or _BITS_MAX))
        packed = deflater.compress(data)
        if fin:
            packed += deflater.flush(zlib.Z_SYNC_FLUSH)
            packed = packed.removesuffix(_TAIL)
        self._deflater = None if fin and self._forgets[1] else deflater
        return RsvBits(opcode is not Opcode.CONTINUATION, rsv.rsv2, rsv.rsv3), packed


def agree(values: Iterable[bytes]) -> Deflate | None:
    """Return the compression for a handshake's offers: the first one that is acceptable.

    Args:
        values: Those of the client's headers Sec-WebSocket-Extensions.

    Returns:
        ``None``: no compression. Offers that cannot be read are declined (RFC 7692, 5.1 and 7).
    """
    for value in values:
        for offer in value.split(b","):
            name, *rest = offer.split(b";")
            parameters = _parameters(rest) if name.strip(b" \t") == _NAME.encode() else None
            deflate = None if parameters is None else _accept(parameters)
            if deflate is not None:
                return deflate
    return None


def _parameters(parts: Iterable[bytes]) -> dict[bytes, bytes | None] | None:
    """Return the parameters of an offer; ``None``: they cannot be read, or one comes twice."""
    found: dict[bytes, bytes | None] = {}
    for part in parts:
        name, equals, text = (each.strip(b" \t") for each in part.partition(b"="))
        value = _unquoted(text) if equals else None
        if name in found or not _TOKEN.fullmatch(name):
            return None
        if value is not None and not _TOKEN.fullmatch(value):
            return None
        found[name] = value
    return found


def _unquoted(text: bytes) -> bytes:
    if len(text) > 1 and text.startswith(b'"') and text.endswith(b'"'):
        return _QUOTED_PAIR.sub(rb"\1", text[1:-1])
    return text


def _accept(parameters: Mapping[bytes, bytes | None]) -> Deflate | None:
    bits: dict[bytes, int | None] = {b"client": None, b"server": None}
    forgets = {b"client": False, b"server": False}
    for name, value in parameters.items():
        side, _, what = name.partition(b"_")
        if side not in bits:
            return None
        if what == b"no_context_takeover" and value is None:
            forgets[side] = True
        elif what == b"max_window_bits" and value is not None and _BITS.fullmatch(value):
            bits[side] = int(value)
        elif name == b"client_max_window_bits" and value is None:
            bits[side] = _BITS_MAX  # It lets us choose.
        else:
            return None
    if bits[b"server"] is not None and bits[b"server"] < _BITS_MIN:
        return None
    return Deflate((bits[b"client"], bits[b"server"]), (forgets[b"client"], forgets[b"server"]))


# Refuses too large a WebSocket message by its frames' headers, before their payloads come.


class AnnouncedSize(Extension):
    """An extension that wsproto calls for every frame header. It is never offered to a client.

    Args:
        message_bytes_max: The most that the frames of one message may announce together.
        message_frames_max: The most frames that one message may have.
    """

    name = "announced-size"

    def __init__(self, message_bytes_max: int, message_frames_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._message_frames_max = message_frames_max
        self._announced_bytes = 0
        self._frames = 0
        self._is_noted = False  # The header of the current frame.
        self.refusal: CloseReason | None = None

    def enabled(self) -> bool:
        """Be enabled although no handshake has negotiated it."""
        return True

    def offer(self) -> bool:
        """Offer nothing to clients."""
        return False

    def frame_inbound_header(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002  # wsproto gives it
        opcode: Opcode,
        rsv: RsvBits,  # noqa: ARG002  # as above
        payload_length: int,
    ) -> CloseReason | RsvBits:
        """Count the announced payload of a frame; end the connection if it is too large.

        wsproto asks again when the mask that ends the head has not come yet.
        """
        if not self._is_noted and not opcode.iscontrol():
            if opcode is not Opcode.CONTINUATION:
                self._announced_bytes = self._frames = 0
            self._announced_bytes += payload_length
            self._frames += 1
            if self._announced_bytes > self._message_bytes_max:
                self.refusal = CloseReason.MESSAGE_TOO_BIG
            elif self._frames > self._message_frames_max:
                self.refusal = CloseReason.POLICY_VIOLATION
            if self.refusal is not None:
                return self.refusal
        self._is_noted = True
        return RsvBits(False, False, False)

    def frame_inbound_payload_data(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002  # wsproto gives it
        data: bytes,
    ) -> bytes:
        """Note that a header was complete: each is followed by a payload, even if it is empty."""
        self._is_noted = False
        return data
