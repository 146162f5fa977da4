"""Values between real processes: without a copy, and without a leak when one of them dies."""

import concurrent.futures
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyserve.errors import ReferenceLost
from pyserve.references import Descriptor, References
from tests.mesh.references.child import ARRAY_BYTES, TOKEN
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 30.0
MIB = 2**20


class Child:
    """A process of ``child.py``."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mesh.references.child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def read(self):
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_S)
        line = self.process.stdout.readline() if ready else b""
        assert line, "the process said nothing"
        return json.loads(line)

    def ask(self, text="?"):
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        return self.read()

    def kill(self):
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def close(self):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


@pytest.fixture
def start(tmp_path):
    children = []

    def start(role, *arguments):
        children.append(Child(role, str(tmp_path), *arguments))
        return children[-1]

    yield start
    for child in children:
        child.close()


def test_an_array_crosses_without_a_copy(start):
    """What the consumer has of its own grows by little; the rest is the holder's memory."""
    holder = start("holder")
    wires = holder.read()["descriptors"]
    consumer = start("consumer", *map(json.dumps, wires))
    count = ARRAY_BYTES // 8
    for _ in wires:
        seen = consumer.read()
        assert count * (count - 1) / 2 == seen["total"]
        assert seen["is_inside"]
        assert not seen["writeable"]
        assert 0 == seen["alignment"]
        assert seen["own_growth"] < 10 * MIB
        assert seen["mapped_growth"] >= ARRAY_BYTES * 0.9
    assert {"released": 2} == consumer.ask("release")
    wait_until(lambda: holder.ask() == {"held_bytes": 0, "held_count": 0}, TIMEOUT_S)


@pytest.fixture
def own(tmp_path):
    references = References(node="here", token=TOKEN, run_dir=tmp_path)
    yield references
    references.close()


def test_a_killed_consumer_gives_back_what_it_had(start, own):
    holder = start("holder")
    wires = holder.read()["descriptors"]
    consumer = start("consumer", *map(json.dumps, wires))
    for _ in wires:
        consumer.read()

    for wire in wires:
        own.release(Descriptor.from_wire(wire))
    # Closed, but the consumer still looks at them.
    with pytest.raises(ReferenceLost):
        wait_until(lambda: not own.fetch_blocking(Descriptor.from_wire(wires[0]), TIMEOUT_S))
    assert 2 == holder.ask()["held_count"]
    consumer.kill()
    wait_until(lambda: holder.ask() == {"held_bytes": 0, "held_count": 0}, TIMEOUT_S)


def test_a_killed_holder_is_noticed_at_once_and_mapped_values_stay(start, own):
    holder = start("holder")
    first, second = map(Descriptor.from_wire, holder.read()["descriptors"])
    view = own.fetch_blocking(first, TIMEOUT_S)
    holder.kill()
    begun = time.monotonic()
    with pytest.raises(ReferenceLost):
        own.fetch_blocking(second, TIMEOUT_S)
    assert time.monotonic() - begun < TIMEOUT_S / 2
    assert ARRAY_BYTES < len(bytes(view))


def test_a_fetch_that_waits_ends_with_the_holder(start, own):
    """A stopped process answers nothing; its death does."""
    holder = start("holder")
    first, second = map(Descriptor.from_wire, holder.read()["descriptors"])
    assert own.fetch_blocking(first, TIMEOUT_S)
    os.kill(holder.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, holder.process.pid, os.WSTOPPED)  # every thread of it
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(own.fetch_blocking, second, TIMEOUT_S)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        holder.kill()
        with pytest.raises(ReferenceLost, match="is gone"):
            waiting.result(TIMEOUT_S)
