"""The supervisor of a mesh that stays, over processes that only report and wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pyserve.config import MeshSettings, read_settings
from pyserve.control.discovery import MeshHome
from pyserve.errors import MeshError
from pyserve.launch.supervisor import MeshPlan, Supervisor, controller_arguments
from tests.support.waiting import eventually

TIMEOUT_S = 20.0
PROGRAM = "tests.unit.launch.reporting"
CONTROLLER = '{"controller": "unix:c", "controller_tcp": "", "token_file": "t"}'
INGRESS = '{"addresses": ["here:4711"]}'


class Running:
    """A supervisor that runs, and what it says."""

    def __init__(
        self, *, controller: Sequence[str], ingress: Sequence[str], settings: MeshSettings
    ) -> None:
        self.lines: list[str] = []
        plan = MeshPlan(addresses=("127.0.0.1:0",), development=False, settings=settings)
        self.supervisor = Supervisor(plan, self.lines.append)
        self.controller = self.supervisor._controller
        self.ingress = self.supervisor._ingress
        for role, lines in ((self.controller, controller), (self.ingress, ingress)):
            role.module, role.arguments = PROGRAM, lines
        self.task = asyncio.create_task(self.supervisor.run())

    async def says(self, text: str) -> None:
        await eventually(lambda: any(text in line for line in self.lines), TIMEOUT_S, text)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.task, TIMEOUT_S)

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Signal this process, as a user does."""
        os.kill(os.getpid(), number)

    def pids(self) -> tuple[int, int]:
        assert self.controller.child is not None
        assert self.ingress.child is not None
        return self.controller.child.pid, self.ingress.child.pid


Start = Callable[..., Running]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a supervisor whose children write these lines; its children end with the test."""
    made: list[Running] = []

    def begin(
        *,
        controller: Sequence[str] = (CONTROLLER,),
        ingress: Sequence[str] = (INGRESS,),
        settings: MeshSettings | None = None,
    ) -> Running:
        settings = settings or read_settings({"PYSERVE_HOME": str(tmp_path / "home")})
        made.append(Running(controller=controller, ingress=ingress, settings=settings))
        return made[-1]

    yield begin
    for each in made:
        each.task.cancel()
        await asyncio.gather(each.task, return_exceptions=True)
        for role in (each.controller, each.ingress):
            if role.child is not None:
                await role.child.kill()


def test_command_line_of_a_controller_follows_the_plan() -> None:
    plan = MeshPlan(addresses=(), development=True, settings=read_settings({}))

    assert ["--persistent", "--development"] == list(controller_arguments(plan))


async def test_ends_the_ingress_before_the_controller(start: Start) -> None:
    running = start(ingress=(INGRESS, "--slow"))
    await running.says("the mesh is ready at here:4711")
    controller, ingress = running.controller.child, running.ingress.child
    assert controller is not None
    assert ingress is not None
    running.signal()
    await running.says("draining; a second signal stops at once")
    # Its calls take some time, and find who answers them.
    assert (None, None) == (ingress.status, controller.status)
    # Two that come at the same time are one.
    while ingress.status is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(ingress.pid, signal.SIGTERM)
        await asyncio.sleep(0.02)

    assert 0 == await running.ended()
    assert (1, 0) == (ingress.status, controller.status)


@pytest.mark.parity("G-63")
async def test_child_that_was_killed_is_started_at_once_and_then_later(start: Start) -> None:
    running = start()
    await running.says("the mesh is ready")
    controller, ingress = running.pids()
    os.kill(controller, signal.SIGKILL)
    await running.says(
        f"the controller (process {controller}) was ended by signal 9 (SIGKILL); a new one starts "
        "at once"
    )
    await running.says("the controller runs again")
    os.kill(running.pids()[0], signal.SIGKILL)
    await running.says("a new one starts in 1 s")
    os.kill(ingress, signal.SIGKILL)
    await running.says("the ingress runs again")
    running.signal()

    assert 0 == await running.ended()


async def test_ingress_that_has_served_comes_back_at_once_however_often(start: Start) -> None:
    """Its clients wait at a socket that outlives it."""
    running = start()
    await running.says("the mesh is ready")
    for _ in range(4):
        ingress = running.pids()[1]
        os.kill(ingress, signal.SIGKILL)
        await running.says(f"(process {ingress}) was ended by signal 9 (SIGKILL); a new one")
        await eventually(lambda: running.lines[-1].startswith("the ingress runs again"), TIMEOUT_S)

    assert 4 == sum("a new one starts at once" in line for line in running.lines)
    running.signal()
    assert 0 == await running.ended()


async def test_ingress_that_cannot_start_again_comes_back_later(start: Start) -> None:
    running = start()
    await running.says("the mesh is ready")
    running.ingress.arguments = ["--end=3"]
    os.kill(running.pids()[1], signal.SIGKILL)
    await running.says("a new one starts at once")
    await running.says("ended with status 3 while it started; a new one starts in 1 s")
    running.ingress.arguments = [INGRESS]
    await running.says("the ingress runs again")
    running.signal()

    assert 0 == await running.ended()


async def test_child_that_ends_by_itself_is_no_end_of_the_mesh(start: Start) -> None:
    """An ingress that somebody has sent SIGTERM: its clients still want one."""
    running = start()
    await running.says("the mesh is ready")
    os.kill(running.pids()[1], signal.SIGTERM)
    await running.says("ended with status 0; a new one starts at once")
    await running.says("the ingress runs again")
    running.signal()

    assert 0 == await running.ended()


async def test_controller_that_ends_in_order_ends_the_mesh(start: Start) -> None:
    running = start(ingress=(INGRESS, '{"ends": "mesh"}'))
    await running.says("the mesh is ready")
    controller, ingress = running.pids()
    # As `pyserve shutdown` has it: the ingress is told, and goes first.
    os.kill(ingress, signal.SIGTERM)
    assert running.ingress.child is not None
    await running.ingress.child.wait()
    os.kill(controller, signal.SIGTERM)

    assert 0 == await running.ended()
    assert ["the mesh was shut down by another command, or by a signal"] == running.lines[2:]


async def test_ingress_comes_back_when_the_mesh_does_not_end_after_all(start: Start) -> None:
    running = start(ingress=(INGRESS, '{"ends": "mesh"}'))
    await running.says("the mesh is ready")
    running.ingress.arguments = [INGRESS]
    controller, ingress = running.pids()
    os.kill(ingress, signal.SIGTERM)
    assert running.ingress.child is not None
    await running.ingress.child.wait()
    os.kill(controller, signal.SIGKILL)
    await running.says("the controller runs again")
    await running.says("the ingress runs again")
    running.signal()

    assert 0 == await running.ended()


async def test_second_signal_does_not_wait(start: Start) -> None:
    running = start(controller=(CONTROLLER, "--slow"), ingress=(INGRESS, "--slow"))
    await running.says("the mesh is ready")
    running.signal()
    await running.says("draining")
    running.signal(signal.SIGINT)

    assert 128 + signal.SIGINT == await running.ended()


@contextlib.contextmanager
def _replica(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a process that looks like a replica of that directory, and drains on SIGTERM."""
    name = ["--replica-id", "Echo#a", "--lasting", str(run_dir), "--token-fd", "0"]
    environment = {"SUBJECT": "drain", "SUBJECT_PLACE": str(run_dir / "place")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.launch.subject", *name],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert b"waits\n" == process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("is_back", [False, True])
async def test_replicas_of_a_controller_that_is_dead_are_drained_with_the_mesh(
    start: Start, tmp_path: Path, is_back: bool
) -> None:
    controller = f'{{"controller": "unix:{tmp_path}/c", "controller_tcp": "", "token_file": "t"}}'
    running = start(controller=(controller,))
    await running.says("the mesh is ready")
    with _replica(tmp_path) as replica:
        if not is_back:
            # Then it waits, since it has been restarted a moment ago.
            os.kill(running.pids()[0], signal.SIGKILL)
            await running.says("the controller runs again")
        os.kill(running.pids()[0], signal.SIGKILL)
        await running.says("starts at once" if is_back else "starts in 1 s")
        running.signal()

        assert 0 == await running.ended()
        assert 0 == await asyncio.to_thread(replica.wait, TIMEOUT_S)
    assert "drained" == (tmp_path / "place").read_text()
    assert "replicas that no controller was there for have ended (1)" == running.lines[-1]


async def test_replicas_that_another_mesh_has_by_now_are_left_alone(
    start: Start, tmp_path: Path
) -> None:
    settings = read_settings({"PYSERVE_HOME": str(tmp_path)})
    controller = f'{{"controller": "unix:{tmp_path}/c", "controller_tcp": "", "token_file": "t"}}'
    running = start(controller=(controller,), settings=settings)
    await running.says("the mesh is ready")
    with _replica(tmp_path) as replica, MeshHome(tmp_path):
        running.signal()

        assert 0 == await running.ended()
        assert replica.poll() is None


async def test_start_that_fails_ends_what_has_started(start: Start) -> None:
    running = start(ingress=('{"error": "port 8000 is taken"}',))
    with pytest.raises(MeshError, match="port 8000 is taken"):
        await running.ended()

    assert running.controller.child is not None
    assert "ended with status 0" in running.controller.child.how_it_ended()


async def test_signal_while_it_starts_ends_it(start: Start) -> None:
    running = start(ingress=())  # It never says that it is ready.
    await eventually(lambda: running.ingress.child is not None, TIMEOUT_S)
    running.signal()

    assert 0 == await running.ended()
