"""Interpreters that wait for replicas to start: who may have one, and what becomes of it."""

import asyncio
import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from pyserve.config import Resources
from pyserve.launch import Environments, LocalLauncher, ReplicaOrder
from pyserve.launch.ledger import Ledger
from pyserve.launch.spares import fits
from pyserve.launch.strays import Identity
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from tests.support.launching import next_end
from tests.support.waiting import eventually
from tests.unit.launch.lasting_owner import make, order
from tests.unit.launch.test_lasting import REPLICA, Next
from tests.unit.launch.test_local import is_running, nowhere, open_descriptors

TIMEOUT_S = 20.0
PROCESSOR = min(os.sched_getaffinity(0))
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("begun_with", "wanted", "expected"),
    [
        ({}, {"COLOUR": "blue", "OMP_NUM_THREADS": "4"}, True),
        ({"COLOUR": "red"}, {}, True),
        ({"PYTHONPATH": "/a", "TZ": "UTC"}, {"PYTHONPATH": "/a", "TZ": "UTC"}, True),
        ({"PYTHONPATH": "/a"}, {"PYTHONPATH": "/b"}, False),
        ({}, {"LD_PRELOAD": "libjemalloc.so"}, False),
        ({"LANG": "C.UTF-8"}, {}, False),
        ({}, {"GRPC_VERBOSITY": "debug"}, False),
    ],
)
def test_what_is_read_at_the_start_cannot_be_told_later(begun_with, wanted, expected):
    assert expected == fits(begun_with, wanted)


class Elsewhere(Environments):
    """Has another interpreter for deployments that need packages."""

    async def interpreter(self, requirements):
        return str(self._folder / "python") if requirements else sys.executable


class Launched:
    """A launcher that keeps a spare, and what came out of it."""

    def __init__(self, run_dir):
        self.lines: list[str] = []
        self.launcher = LocalLauncher(
            controller=nowhere,
            token=b"s3cret",
            run_dir=run_dir,
            on_line=self.lines.append,
            module="tests.unit.launch.subject",
            ledger=Ledger(cpus=[PROCESSOR], gpus=["3"]),
            environments=Elsewhere(run_dir),
            spares=1,
        )

    async def spare(self):
        """Return the process that waits, once there is one."""
        await eventually(self.launcher.spare_pids, TIMEOUT_S)
        (pid,) = self.launcher.spare_pids()
        return pid

    async def start(self, behaviour="tell", **changes):
        values: dict[str, Any] = {
            "replica_id": REPLICA,
            "key": DeploymentKey(ApplicationName("shop"), DeploymentName("Echo")),
            "sys_path": (),
            "working_directory": "",
            "environment": {"SUBJECT": behaviour, **changes.pop("environment", {})},
            "resources": Resources(),
        }
        return await self.launcher.start(ReplicaOrder(**values | changes))

    async def told(self):
        """Return what the replica says of itself; it has ended then."""
        async with asyncio.timeout(TIMEOUT_S):
            assert "ended with exit code 0" == await next_end(self.launcher)
        line = self.lines.pop()
        assert line.startswith("[Echo#abcde] ")
        return json.loads(line.removeprefix("[Echo#abcde] "))


@pytest.fixture
async def launched(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.setenv("COLOUR", "red")
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    other.chmod(0o700)
    launched = Launched(tmp_path)
    try:
        yield launched
    finally:
        await launched.launcher.close()


async def test_a_spare_becomes_what_a_process_would_be_that_is_started_anew(launched, tmp_path):
    wanted = {
        "working_directory": str(tmp_path),
        "environment": {"OMP_NUM_THREADS": "3"},
        "resources": Resources(num_cpus=1, num_gpus=1),
    }
    spare = await launched.spare()
    # A variable that the launcher's environment has lost since then is not there either.
    os.environ.pop("COLOUR")

    launched.launcher._spares._count = 0  # No other takes its place.
    assert spare == await launched.start(**wanted)
    by_spare = await launched.told()
    assert spare != await launched.start(**wanted)
    anew = await launched.told()

    assert "--spare-fd" in by_spare["argv"]
    assert "--spare-fd" not in anew["argv"]
    assert "COLOUR" not in by_spare["environment"]
    for told in (by_spare, anew):
        del told["argv"], told["pid"]
        # Where they are read from the token and the launcher's end differ.
        told["arguments"] = [each for each in told["arguments"] if not each.isdecimal()]
    assert anew == by_spare


async def test_another_takes_its_place(launched):
    first = await launched.spare()
    await launched.start()
    await launched.told()

    second = await launched.spare()

    assert second != first
    assert second == await launched.start()


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"PYTHONHASHSEED": "7"}},
        {"requirements": ("numpy<2",)},
    ],
    ids=["what the interpreter reads", "another interpreter"],
)
async def test_what_a_spare_cannot_become_is_started_anew(launched, changes):
    spare = await launched.spare()

    assert spare != await launched.start(**changes)

    told = await launched.told()
    assert "--spare-fd" not in told["argv"]
    assert "red" == told["environment"]["COLOUR"]


async def test_who_has_to_be_told_more_than_a_pipe_holds_is_started_anew(launched, caplog):
    spare = await launched.spare()

    assert spare != await launched.start("speak", environment={"LARGE": "x" * 70_000})

    async with asyncio.timeout(TIMEOUT_S):
        assert (await next_end(launched.launcher)).startswith("ended with exit code 3")
    await eventually(lambda: not is_running(spare), TIMEOUT_S)
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


async def test_one_that_has_died_is_no_harm(launched):
    spare = await launched.spare()
    os.kill(spare, signal.SIGKILL)
    await eventually(lambda: not is_running(spare), TIMEOUT_S)

    assert spare != await launched.start()

    await launched.told()
    assert spare != await launched.spare(), "another takes its place"


async def test_the_end_of_one_that_serves_is_noticed_and_its_group_ended(launched):
    spare = await launched.spare()
    await launched.start("spawn")
    await eventually(lambda: launched.lines, TIMEOUT_S)
    grandchild = int(launched.lines[0].removeprefix("[Echo#abcde] "))

    launched.launcher.stop(REPLICA, 0)

    async with asyncio.timeout(TIMEOUT_S):
        assert (await next_end(launched.launcher)).startswith("was killed by SIGKILL")
    await eventually(lambda: not is_running(grandchild), TIMEOUT_S)
    assert not is_running(spare)


async def test_close_ends_one_that_waits_and_no_other_comes(launched):
    spare = await launched.spare()

    await launched.launcher.close()

    assert not is_running(spare)
    assert not launched.launcher.spare_pids()


async def test_descriptors_return_to_what_they_were(launched):
    await launched.spare()
    before = open_descriptors()
    for _ in range(2):
        await launched.start()
        await launched.told()
        await launched.spare()

    # What tests before this one have left may go meanwhile.
    await eventually(lambda: open_descriptors() <= before, TIMEOUT_S)


# Of replicas that outlive their launcher.


@pytest.fixture
async def after(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    after = Next(tmp_path)
    try:
        yield after
    finally:
        after.launcher.end_strays()
        await after.launcher.close()


def waiting(run_dir):
    """Return the processes that were made as spares there."""
    found = []
    for process in psutil.process_iter():
        try:
            arguments = process.cmdline()
        except psutil.Error:
            continue
        if "--spare-fd" in arguments and str(run_dir) in arguments:
            found.append(process.pid)
    return found


@pytest.mark.parity("G-66")
@pytest.mark.parametrize("has_memo", [True, False])
async def test_one_that_serves_is_found_again_and_one_that_waits_ends(after, has_memo):
    memo, lines = await asyncio.to_thread(after.left_by_another, spares=1)
    serving = Identity.from_json(memo).pid
    assert ["[Echo#abcde] waits"] == lines
    # The launcher's end was that of the one that waited.
    await eventually(lambda: [serving] == waiting(after.run_dir), TIMEOUT_S)

    assert serving == after.adopt(memo if has_memo else "")

    after.launcher.end_strays()
    after.say("still here")
    await eventually(lambda: after.lines, TIMEOUT_S)
    assert ["[Echo#abcde] still here"] == after.lines
    after.say("end")
    assert "ended with an unknown status; its last output: still here" == await after.exit()


@pytest.mark.parity("G-66")
async def test_one_that_had_not_read_what_it_was_told_is_ended_and_becomes_no_replica(after):
    memo, _ = await asyncio.to_thread(after.left_by_another, spares=1, more=["stopped"])
    told = Identity.from_json(memo)
    assert told.is_alive()

    assert None is after.adopt(""), "another replica is started instead"
    after.launcher.end_strays()

    await eventually(lambda: not told.is_alive(), TIMEOUT_S)


async def test_one_that_nobody_knows_of_is_ended_and_the_next_launcher_s_own_is_not(after):
    memo, _ = await asyncio.to_thread(after.left_by_another, spares=1)
    following = make(after.run_dir, [], 1)
    try:
        await eventually(following.spare_pids, TIMEOUT_S)

        following.end_strays()

        stray = Identity.from_json(memo)
        await eventually(lambda: not stray.is_alive(), TIMEOUT_S)
        own = following.spare_pids()
        assert all(is_running(pid) for pid in own)
        assert own == {await following.start(order(after.run_dir, "echo"))}
        following.end_strays()
        assert all(is_running(pid) for pid in own), "nor is one that has just been told"
    finally:
        await following.close()


async def test_one_that_becomes_a_replica_tells_its_child_s_end(after):
    launcher = make(after.run_dir, after.lines, 1)
    try:
        await eventually(launcher.spare_pids, TIMEOUT_S)
        (spare,) = launcher.spare_pids()
        wanted = order(after.run_dir, "echo")
        assert spare == await launcher.start(wanted)
        assert spare == Identity.from_json(launcher.memo(ReplicaId(wanted.replica_id))).pid
        await eventually(lambda: after.lines, TIMEOUT_S)
        after.say("end")
        async with asyncio.timeout(TIMEOUT_S):
            assert "ended with exit code 4; its last output: waits" == await next_end(launcher)
    finally:
        await launcher.close()
