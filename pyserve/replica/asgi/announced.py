"""Refuses too large a WebSocket message by its frames' headers, before their payloads come."""

from __future__ import annotations

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits


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
