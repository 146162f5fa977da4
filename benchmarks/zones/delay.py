"""``python -m benchmarks.zones.delay TAP TAP MILLISECONDS``: a line that takes its time.

Carries the frames of each of two TAP devices to the other one, so many milliseconds later. It does
what the kernel's netem would, which many kernels are built without. Prints ``carries`` when it
does, and ends with its standard input.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME_BYTES_MAX = 65536 + 64
# More than the line holds at the rates that are measured; what is beyond is lost, as by netem.
_FRAMES_MAX = 20_000
# It competes with what is measured.
_NICE = -10


class _Direction:
    """Frames on their way from one device to the other."""

    def __init__(self, source: int, target: int, delay_s: float) -> None:
        self.source = source
        self._target = target
        self._delay_s = delay_s
        self._frames: deque[tuple[float, bytes]] = deque()

    def take(self) -> None:
        """Take what has come."""
        with contextlib.suppress(BlockingIOError):
            while True:
                frame = os.read(self.source, _FRAME_BYTES_MAX)
                if len(self._frames) < _FRAMES_MAX:
                    self._frames.append((time.monotonic() + self._delay_s, frame))

    def give(self) -> float | None:
        """Give what is due; return when the next frame is, ``None`` without one."""
        while self._frames:
            due, frame = self._frames[0]
            if due > time.monotonic():
                return due
            self._frames.popleft()
            # A device that takes no more loses the frame, as a full line does.
            with contextlib.suppress(BlockingIOError):
                os.write(self._target, frame)
        return None


def main(first: str, second: str, milliseconds: str) -> None:
    """Carry until standard input ends."""
    os.nice(_NICE)
    one, two = _open(first), _open(second)
    delay_s = float(milliseconds) / 1e3
    directions = (_Direction(one, two, delay_s), _Direction(two, one, delay_s))
    print("carries", flush=True)
    while True:
        due = [at for each in directions if (at := each.give()) is not None]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        # select, since poll and epoll count in milliseconds.
        ready, _, _ = select.select([one, two, sys.stdin], [], [], wait_s)
        if sys.stdin in ready:
            return
        for each in directions:
            if each.source in ready:
                each.take()


def _open(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return device


if __name__ == "__main__":
    main(*sys.argv[1:])
