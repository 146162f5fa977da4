"""Forks of user code, wherever it forks and however the child ends: the replica goes on."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
import httpx
import psutil
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.apps.forking import EXIT_CODE
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TARGET = "tests.mesh.apps.forking:made"
CALLS = 20
# A busy machine answers within a second; a replica that lost its wake-ups never does.
ANSWER_TIMEOUT_S = 15.0
LOOPS = ["uvloop", "asyncio"]
CAME_BACK = "came back from the code that forked"


class Replica:
    """The one replica, and the instructions that the tests give it."""

    def __init__(self, mesh: RunningMesh, channel: grpc.Channel) -> None:
        self.mesh = mesh
        self._stub = echo_pb2_grpc.EchoStub(channel)
        self._pid = self.tell("pid")

    def tell(self, instruction: str, *, threaded: bool = False) -> str:
        method = self._stub.EchoSync if threaded else self._stub.Echo
        request = echo_pb2.EchoRequest(payload=instruction.encode())
        reply: echo_pb2.EchoReply = method(request, timeout=2 * ANSWER_TIMEOUT_S)
        return reply.payload.decode()

    def exit_code_of(self, child: str) -> int:
        return int(self.tell(f"wait {child}", threaded=True))

    def expect_to_go_on(self) -> None:
        """The same process answers one call after the other."""
        assert [self._pid] * CALLS == [self.tell("pid") for _ in range(CALLS)]


@contextmanager
def replica(loop: str, folder: Path, *arguments: str) -> Iterator[Replica]:
    environment = {}
    if loop == "asyncio":
        (folder / "uvloop.py").write_text("raise ImportError\n")
        environment = {"PYTHONPATH": str(folder)}
    with (
        running_mesh(TARGET, *arguments, environment=environment) as mesh,
        grpc.insecure_channel(mesh.address) as channel,
    ):
        yield Replica(mesh, channel)


def _has_told(asked: Replica, count: int) -> bool:
    return count == asked.mesh.output().count(CAME_BACK)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_ends_as_it_says_and_its_parent_answers(loop: str, tmp_path: Path) -> None:
    """In ``async def``, ``def`` and a thread of user code."""
    notes = tmp_path / "notes"
    with replica(loop, tmp_path, f"notes={notes}") as asked:
        asked.expect_to_go_on()
        for end, code in {
            "_exit": EXIT_CODE,
            "exec": EXIT_CODE,
            "exit": EXIT_CODE,
            "raise": 1,
        }.items():
            for instruction, threaded in (("fork", False), ("fork", True), ("thread", False)):
                child = asked.tell(f"{instruction} {end}", threaded=threaded)
                assert code == asked.exit_code_of(child), (end, instruction, threaded)
                asked.expect_to_go_on()
        for end, threaded in (("return", False), ("await", False), ("return", True)):
            before = asked.mesh.output().count(CAME_BACK)
            child = asked.tell(f"fork {end}", threaded=threaded)
            assert 1 == asked.exit_code_of(child)
            # The line passes the launcher, so it may come after the end.
            wait_until(partial(_has_told, asked, before + 1))
            asked.expect_to_go_on()
        assert asked.exit_code_of(asked.tell("thread return")) == 0
        asked.expect_to_go_on()
        assert "ValueError: raised in the child" in asked.mesh.output()
        # No child has run anything else of its parent's loop.
        assert {asked.tell("pid")} == set(notes.read_text().split())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_at_the_limit_of_descriptors_ends_too(loop: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with replica(loop, tmp_path, f"notes={notes}") as asked:
        for end, code in {"exit": EXIT_CODE, "return": 1}.items():
            child = asked.tell(f"fork-when-full {end}")
            assert code == asked.exit_code_of(child)
            asked.expect_to_go_on()
        assert {asked.tell("pid")} == set(notes.read_text().split())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("end", "code"), [("_exit", EXIT_CODE), ("exit", EXIT_CODE), ("raise", 1), ("return", 1)]
)
def test_a_child_of_the_constructor_becomes_no_second_replica(
    loop: str, end: str, code: int, tmp_path: Path
) -> None:
    with replica(loop, tmp_path, f"end={end}") as asked:
        assert code == asked.exit_code_of(asked.tell("constructor"))
        asked.expect_to_go_on()


@pytest.mark.parametrize("door", ["http", "batch", "anyio"])
def test_children_of_other_doors_end_too(door: str, tmp_path: Path) -> None:
    with replica("uvloop", tmp_path) as asked:
        for end, code in {"exit": EXIT_CODE, "raise": 1, "return": 1}.items():
            url = f"http://{asked.mesh.address}/"
            answer = httpx.get(url, params={"door": door, "end": end}, timeout=ANSWER_TIMEOUT_S)
            assert code == asked.exit_code_of(answer.raise_for_status().text)
            asked.expect_to_go_on()


@pytest.mark.parametrize("threaded", [False, True])
def test_a_child_that_lives_has_no_connection_of_its_parent(threaded: bool, tmp_path: Path) -> None:
    with replica("uvloop", tmp_path) as asked:
        parent = psutil.Process(int(asked.tell("pid")))
        assert connections_of(parent)
        child = psutil.Process(int(asked.tell("fork pause", threaded=threaded)))
        # The parent may answer before the child has run its first line.
        wait_until(lambda: not connections_of(child))
        child.kill()
        assert -signal.SIGKILL == asked.exit_code_of(str(child.pid))
        asked.expect_to_go_on()


def connections_of(process: psutil.Process) -> list[str]:
    """Return what a process listens on, or has accepted there."""
    found = process.net_connections("all")
    return [str(each) for each in found if each.laddr and each.family != socket.AF_NETLINK]


@pytest.mark.parametrize("loop", LOOPS)
def test_libraries_that_start_processes_are_not_disturbed(loop: str, tmp_path: Path) -> None:
    with replica(loop, tmp_path) as asked:
        for start in ("multiprocessing", "subprocess", "subprocess preexec", "spawn"):
            threaded = start != "multiprocessing"
            assert EXIT_CODE == int(asked.tell(start, threaded=threaded)), start
            asked.expect_to_go_on()
        assert CAME_BACK not in asked.mesh.output()
