"""Replica processes: what they get, what they say, and that none outlives its launcher."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from pyserve.config import Resources
from pyserve.launch import Gang, LocalLauncher, ReplicaOrder, Waiting
from pyserve.launch.capacity import KernelKills
from pyserve.launch.ledger import Ledger, ResourcesUnavailable
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from tests.support.launching import next_end, next_event
from tests.support.waiting import eventually, wait_until

TIMEOUT_S = 20.0
TOKEN = b"s3cret-mesh-token"
REPLICA = ReplicaId("Echo#abcde")
OTHER: dict[str, Any] = {"replica_id": ReplicaId("Echo#other")}
PROCESSOR = min(os.sched_getaffinity(0))
pytestmark = pytest.mark.slow


async def nowhere():
    return "unix:/nowhere"


class Launched:
    """A launcher whose replicas run the tests' subject, and what came out of it."""

    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.lines: list[str] = []
        self.killed = 1  # By the kernel.
        self.launcher = LocalLauncher(
            controller=nowhere,
            token=TOKEN,
            run_dir=run_dir,
            on_line=self.lines.append,
            module="tests.unit.launch.subject",
            ledger=Ledger(cpus=[PROCESSOR], gpus=["3", "5"], custom={"seats": 4}),
            kernel_kills=KernelKills(lambda: self.killed),
        )

    async def start(self, behaviour, **changes):
        values: dict[str, Any] = {
            "replica_id": REPLICA,
            "key": DeploymentKey(ApplicationName("shop"), DeploymentName("Echo")),
            "sys_path": (),
            "working_directory": "",
            "environment": {"SUBJECT": behaviour},
            "resources": Resources(),
        }
        await self.launcher.start(ReplicaOrder(**values | changes))

    async def exit(self):
        async with asyncio.timeout(TIMEOUT_S):
            return await next_end(self.launcher)

    async def first_line(self):
        await eventually(lambda: self.lines, TIMEOUT_S)
        return self.lines[0]


@pytest.fixture
async def launched(tmp_path, monkeypatch):
    # The subject is a module of the tests, found as the package is.
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    launched = Launched(tmp_path)
    try:
        yield launched
    finally:
        await launched.launcher.close()


async def test_every_line_has_the_replicas_prefix_and_a_bound(launched):
    await launched.start("speak")

    summary = await launched.exit()

    assert "[Echo#abcde] out" in launched.lines
    assert "[Echo#abcde] err" in launched.lines
    (long,) = [line for line in launched.lines if "xxx" in line]
    assert long.endswith(f"[{20_000 - 16 * 1024} bytes more]")
    assert summary.startswith("ended with exit code 3; its last output: ")


async def test_replica_gets_its_place_and_no_secret_in_sight(launched, tmp_path):
    await launched.start(
        "tell",
        working_directory=str(tmp_path),
        environment={"SUBJECT": "tell", "COLOUR": "blue"},
    )
    assert "ended with exit code 0" == await launched.exit()

    told = json.loads(launched.lines[0].removeprefix("[Echo#abcde] "))
    assert (TOKEN.decode(), str(tmp_path), "Echo#abcde", True, True) == (
        told["token"],
        told["directory"],
        told["replica"],
        told["group"],
        told["session"],
    )
    environment = told["environment"]
    assert ("blue", "1", str(tmp_path)) == (
        environment["COLOUR"],
        environment["OMP_NUM_THREADS"],
        environment["PYSERVE_RUN_DIR"],
    )
    visible = json.dumps([told["argv"], environment])
    assert TOKEN.decode() not in visible
    assert TOKEN.hex() not in visible


async def test_death_is_noticed_with_its_cause(launched):
    await launched.start("die")

    assert "was killed by SIGKILL" == await launched.exit()


async def test_a_death_for_want_of_memory_is_told_as_such(launched):
    await launched.start("die")
    launched.killed += 1

    summary = await launched.exit()

    wanted = (
        r"was killed by SIGKILL, likely by the kernel for want of memory \(it had \d+ MiB at most\)"
    )
    assert re.fullmatch(wanted, summary)
    # Another one has no part in it.
    await launched.start("die")
    assert "was killed by SIGKILL" == await launched.exit()


async def test_kill_takes_the_whole_group(launched):
    await launched.start("spawn")
    grandchild = int((await launched.first_line()).removeprefix("[Echo#abcde] "))

    launched.launcher.stop(REPLICA, 0)

    assert "was killed by SIGKILL" == (await launched.exit()).partition(";")[0]
    await eventually(lambda: not is_running(grandchild), TIMEOUT_S)


async def test_death_is_noticed_and_the_group_ended_though_a_grandchild_holds_the_output(launched):
    await launched.start("spawn")
    grandchild = int((await launched.first_line()).removeprefix("[Echo#abcde] "))

    os.kill(psutil.Process(grandchild).ppid(), signal.SIGKILL)

    assert "was killed by SIGKILL" == (await launched.exit()).partition(";")[0]
    await eventually(lambda: not is_running(grandchild), TIMEOUT_S)


async def test_close_ends_what_is_left_and_starts_nothing_more(launched):
    await launched.start("wait")
    await launched.first_line()

    await launched.launcher.close()

    assert "was killed by SIGKILL" == (await launched.exit()).partition(";")[0]
    with pytest.raises(OSError, match="closed"):
        await launched.start("wait")


async def test_start_that_cannot_be_says_why(launched):
    with pytest.raises(OSError, match="no-such-directory"):
        await launched.start("wait", working_directory="/no-such-directory")


async def test_unknown_replica_is_killed_without_effect(launched):
    launched.launcher.stop(ReplicaId("Echo#zzzzz"), 0)


async def test_descriptors_return_to_what_they_were(launched):
    await launched.start("speak")
    await launched.exit()
    before = open_descriptors()
    for _ in range(3):
        await launched.start("speak")
        await launched.exit()

    # What tests before this one have left may go meanwhile.
    await eventually(lambda: open_descriptors() <= before, TIMEOUT_S)


def test_replicas_end_when_their_launcher_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.launch.owner", str(tmp_path)], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert 2 == len(pids)
        assert all(is_running(pid) for pid in pids)

        owner.kill()

        wait_until(lambda: not any(is_running(pid) for pid in pids), TIMEOUT_S)


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parity("S-08")
async def test_replica_gets_the_processors_and_devices_it_reserved(launched):
    """They are its own until it ends."""
    wanted = Resources(num_cpus=1, num_gpus=1)
    await launched.start("tell", resources=wanted)
    await launched.exit()
    told = json.loads(launched.lines[0].removeprefix("[Echo#abcde] "))
    assert [PROCESSOR] == told["processors"]
    assert "3" == told["environment"]["CUDA_VISIBLE_DEVICES"]
    await launched.start("tell", resources=wanted)
    assert "ended with exit code 0" == await launched.exit()


@pytest.mark.parity("S-08")
@pytest.mark.parametrize(
    ("wanted", "missed"),
    [
        (Resources(num_cpus=1), "num_cpus=1: of the 1 of this machine 0 are not reserved"),
        (Resources(num_gpus=2), "num_gpus=2: of the 2 of this machine 1 are not reserved"),
        (Resources(resources={"seats": 3}), "resources['seats']=3: of the 4 of this machine 2 "),
    ],
)
async def test_one_that_finds_too_little_left_says_so_and_starts_when_there_is(
    launched, wanted, missed
):
    holds = Resources(num_cpus=1, num_gpus=1, resources={"seats": 2})
    await launched.start("wait", resources=holds)
    waiting = asyncio.create_task(launched.start("speak", resources=wanted, **OTHER))

    event = await next_event(launched.launcher)
    assert isinstance(event, Waiting)
    assert OTHER["replica_id"] == event.replica_id
    assert event.why.startswith(missed)
    assert not waiting.done()

    launched.launcher.stop(REPLICA, 0)
    await launched.exit()
    assert Waiting(OTHER["replica_id"], "") == await next_event(launched.launcher)
    await waiting
    assert (await launched.exit()).startswith("ended with exit code 3")


async def test_one_that_waits_can_be_stopped_and_ends_with_the_launcher(launched):
    held = Resources(num_cpus=1)
    await launched.start("wait", resources=held)

    async def stop():
        launched.launcher.stop(OTHER["replica_id"], 0)

    for end in (stop, launched.launcher.close):
        waiting = asyncio.create_task(launched.start("tell", resources=held, **OTHER))
        await next_event(launched.launcher)
        await end()
        with pytest.raises(OSError, match="stopped while it waited for resources"):
            await waiting


@pytest.mark.parametrize(
    ("wanted", "changes"),
    [
        # The machine never has so much.
        (Resources(num_cpus=2), {}),
        # The one before ends when the new one serves, and members of gangs wait for each other.
        (Resources(num_cpus=1), {"version": "newer"}),
        (Resources(num_cpus=1), {"gang": Gang("g", 0, 2, "PACK")}),
    ],
)
async def test_what_would_wait_for_ever_is_refused_with_both_figures(launched, wanted, changes):
    await launched.start("wait", resources=Resources(num_cpus=1))

    figures = r"num_cpus is [12], but .*(1 .* 0 are not|has only 1;)"
    with pytest.raises(ResourcesUnavailable, match=figures):
        await launched.start("tell", resources=wanted, **{**OTHER, **changes})


@pytest.mark.parity("S-09")
@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OMP_NUM_THREADS": "7"}, "7")])
async def test_libraries_get_the_threads_that_were_reserved(launched, given, expected):
    """Unless the deployment's own environment says otherwise."""
    environment = {"SUBJECT": "tell", **given}
    await launched.start("tell", resources=Resources(num_cpus=1), environment=environment)
    await launched.exit()
    told = json.loads(launched.lines[0].removeprefix("[Echo#abcde] "))
    assert expected == told["environment"]["OMP_NUM_THREADS"]
    assert "1" == told["environment"]["MKL_NUM_THREADS"]
