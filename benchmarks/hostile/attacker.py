"""A process full of hostile connections: ``python -m benchmarks.hostile.attacker``.

One thread and a selector, so that it costs as little as it can for what it sends. On its standard
output are the word "ready", before it begins, and one line of JSON when its time is over.
"""

from __future__ import annotations

import argparse
import errno
import json
import resource
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from benchmarks.hostile.attacks import ATTACKS, Attack
from benchmarks.hostile.http2 import goaway_code

# What of an answer is kept to find a GOAWAY in; floods are answered with a lot.
_KEPT_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 18


@dataclass
class Outcome:
    """What became of the connections.

    Attributes:
        opened: Connections that were made.
        closed: Those that the mesh closed.
        goaways: By the error of their GOAWAY; "none" for those that were closed without one.
        sent_bytes: All that the kernel took.
        received_bytes: All that was read.
        first_closed_s: Seconds until the mesh closed one for the first time.
        blocked_s: The longest time for which one connection could not send.
        first_answers: How often which first line, or what else, was answered.
    """

    opened: int = 0
    closed: int = 0
    goaways: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0
    received_bytes: int = 0
    first_closed_s: float | None = None
    blocked_s: float = 0.0
    first_answers: Counter[str] = field(default_factory=Counter)


class _Connection:
    def __init__(self, address: tuple[str, int], attack: Attack, source: str) -> None:
        self.socket = socket.create_connection(address, timeout=5, source_address=(source, 0))
        self.socket.setblocking(False)
        self.pieces: Iterator[bytes] = attack.send()
        self.unsent = memoryview(b"")
        self.kept = bytearray()
        self.next_piece_s = 0.0
        self.moved_s = time.monotonic()
        self.is_done = False

    def send(self, attack: Attack, now_s: float) -> int:
        """Send what the kernel takes of the next piece; return how much that was."""
        if not self.unsent:
            if now_s < self.next_piece_s:
                return 0
            piece = next(self.pieces, None)
            if piece is None:
                self.is_done = True
                return 0
            self.unsent = memoryview(piece)
            self.next_piece_s = now_s + attack.piece_interval_s
        try:
            sent = self.socket.send(self.unsent)
        except BlockingIOError:
            return 0
        self.unsent = self.unsent[sent:]
        self.moved_s = now_s
        return sent


def run(
    name: str,
    address: tuple[str, int],
    seconds: float,
    *,
    until_closed: bool = False,
    source: str = "",
) -> Outcome:
    """Attack for some seconds, or until the mesh has closed a connection.

    ``source`` is the address of the attacker; "": any.
    """
    attack, outcome = ATTACKS[name], Outcome()
    begun_s = time.monotonic()
    with selectors.DefaultSelector() as selector:
        while (now_s := time.monotonic()) < begun_s + seconds:
            while _may_open(len(selector.get_map()), attack, outcome):
                if not _open(selector, address, attack, outcome, source):
                    break
            timeout_s = min(0.05, attack.piece_interval_s or 0.05)
            for key, events in selector.select(timeout_s):
                _step(selector, key.data, events, attack, outcome, begun_s)
            _rest(selector, attack, now_s)
            if until_closed and outcome.closed:
                break
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    return outcome


def _may_open(count: int, attack: Attack, outcome: Outcome) -> bool:
    is_new = attack.reopens or outcome.opened < attack.connections
    return is_new and count < attack.connections


def _open(
    selector: selectors.BaseSelector,
    address: tuple[str, int],
    attack: Attack,
    outcome: Outcome,
    source: str,
) -> bool:
    try:
        connection = _Connection(address, attack, source)
    except OSError:
        outcome.goaways["not accepted"] += 1
        time.sleep(0.01)
        return False
    outcome.opened += 1
    selector.register(connection.socket, _events(connection, attack), connection)
    return True


def _events(connection: _Connection, attack: Attack, *, may_send: bool = True) -> int:
    wanted = selectors.EVENT_READ if attack.reads or connection.is_done else 0
    if may_send and not connection.is_done:
        wanted |= selectors.EVENT_WRITE
    # A selector takes nobody who waits for nothing.
    return wanted or selectors.EVENT_WRITE


def _rest(selector: selectors.BaseSelector, attack: Attack, now_s: float) -> None:
    """Look at those again whose pause is over, and not at those that pause."""
    if not attack.piece_interval_s:
        return
    for key in list(selector.get_map().values()):
        connection = key.data
        is_due = now_s >= connection.next_piece_s or bool(connection.unsent)
        wanted = _events(connection, attack, may_send=is_due)
        if wanted != key.events and (attack.reads or is_due):
            selector.modify(connection.socket, wanted, connection)


def _step(
    selector: selectors.BaseSelector,
    connection: _Connection,
    events: int,
    attack: Attack,
    outcome: Outcome,
    begun_s: float,
) -> None:
    now_s = time.monotonic()
    try:
        if events & selectors.EVENT_READ and not _read(connection, attack, outcome):
            raise ConnectionResetError(errno.ECONNRESET, "closed")
        if events & selectors.EVENT_WRITE and not connection.is_done:
            outcome.blocked_s = max(outcome.blocked_s, now_s - connection.moved_s)
            outcome.sent_bytes += connection.send(attack, now_s)
            if connection.is_done:
                selector.modify(connection.socket, _events(connection, attack), connection)
    except (ConnectionError, TimeoutError):
        _close(selector, connection, outcome, now_s - begun_s)


def _read(connection: _Connection, attack: Attack, outcome: Outcome) -> bool:
    """Take what came, unless this is one who does not read; False at the end."""
    if not attack.reads:
        # Only whether it has ended.
        with suppress(BlockingIOError):
            return bool(connection.socket.recv(1, socket.MSG_PEEK))
        return True
    received = connection.socket.recv(_READ_BYTES)
    outcome.received_bytes += len(received)
    if received and not connection.kept:
        outcome.first_answers[_first_line(received)] += 1
    connection.kept += received
    del connection.kept[: max(0, len(connection.kept) - _KEPT_BYTES_MAX)]
    return bool(received)


def _first_line(received: bytes) -> str:
    if received.startswith(b"HTTP/1."):
        return received.split(b"\r\n", 1)[0].decode("ascii", "replace")
    return "frames"


def _close(
    selector: selectors.BaseSelector, connection: _Connection, outcome: Outcome, at_s: float
) -> None:
    selector.unregister(connection.socket)
    # What had come before the end is still there to be read.
    with suppress(OSError):
        while received := connection.socket.recv(_READ_BYTES):
            connection.kept += received
    connection.socket.close()
    outcome.closed += 1
    if outcome.first_closed_s is None:
        outcome.first_closed_s = round(at_s, 3)
    code = goaway_code(bytes(connection.kept))
    outcome.goaways["none" if code is None else str(code)] += 1


def main() -> None:
    """Attack as the command line says, and write the outcome."""
    parser = argparse.ArgumentParser(description="hostile connections for some seconds")
    parser.add_argument("name", choices=ATTACKS)
    parser.add_argument("address", help="host:port")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--until-closed", action="store_true", help="end with the first close")
    parser.add_argument("--source", default="", help="address of the attacker")
    arguments = parser.parse_args()
    host, _, port = arguments.address.rpartition(":")
    # Some attacks are many connections.
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    print("ready", flush=True)
    address = (host, int(port))
    outcome = run(
        arguments.name,
        address,
        arguments.seconds,
        until_closed=arguments.until_closed,
        source=arguments.source,
    )
    print(json.dumps(vars(outcome)))


if __name__ == "__main__":
    main()
