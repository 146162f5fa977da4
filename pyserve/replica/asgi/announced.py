"""Refuses a WebSocket message by the lengths that its frames announce, before they have come."""

from __future__ import annotations

from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits


class AnnouncedSize(Extension):
    """What wsproto asks about every frame's head. It is never offered to a client.

    Args:
        message_bytes_max: The most that the frames of one message may announce together.
    """

    name = "announced-size"

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._announced_bytes = 0
        self.is_exceeded = False

    def enabled(self) -> bool:
        """Take part, though no handshake has named it."""
        return True

    def offer(self) -> bool:
        """Stay unknown to clients."""
        return False

    def frame_inbound_header(
        self,
        proto: FrameDecoder | FrameProtocol,  # noqa: ARG002  # wsproto gives it
        opcode: Opcode,
        rsv: RsvBits,  # noqa: ARG002  # as above
        payload_length: int,
    ) -> CloseReason | RsvBits:
        """Count what a frame announces; end the connection where that is too much."""
        if not opcode.iscontrol():
            before = self._announced_bytes if opcode is Opcode.CONTINUATION else 0
            self._announced_bytes = before + payload_length
            if self._announced_bytes > self._message_bytes_max:
                self.is_exceeded = True
                return CloseReason.MESSAGE_TOO_BIG
        return RsvBits(False, False, False)
