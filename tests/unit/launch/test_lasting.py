"""Replicas that outlive their launcher, and the next launcher that finds them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pyserve.launch import Waiting, lasting
from pyserve.launch.ledger import Grant
from pyserve.launch.strays import Identity, identify, start_time
from pyserve.types import ReplicaId
from tests.support.launching import next_end, next_event
from tests.support.waiting import eventually
from tests.unit.launch.lasting_owner import make, order
from tests.unit.launch.test_local import is_running

TIMEOUT_S = 20.0
REPLICA = ReplicaId("Echo#abcde")
pytestmark = [pytest.mark.slow, pytest.mark.parity("G-66")]


class Next:
    """The launcher after one that was killed."""

    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.lines: list[str] = []
        self.launcher = make(run_dir, self.lines)

    def left_by_another(self, behaviour="echo", spares=0, more=()):
        """Let a launcher start a replica and be killed; return the memo and the lines it had."""
        command = [sys.executable, "-m", "tests.unit.launch.lasting_owner"]
        arguments = [str(self.run_dir), behaviour, str(spares), *more]
        owner = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, check=False)
        assert -signal.SIGKILL == owner.returncode
        memo, lines = json.loads(owner.stdout)
        return memo, lines

    def adopt(self, memo, behaviour="echo"):
        return self.launcher.adopt(order(self.run_dir, behaviour), memo)

    def say(self, text):
        (self.run_dir / "place").write_text(text)

    async def exit(self):
        async with asyncio.timeout(TIMEOUT_S):
            return await next_end(self.launcher)


@pytest.fixture
async def after(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    after = Next(tmp_path)
    try:
        yield after
    finally:
        after.launcher.end_strays()
        await after.launcher.close()


async def test_a_replica_is_found_goes_on_and_its_end_is_noticed(after):
    memo, lines = after.left_by_another()
    assert ["[Echo#abcde] waits"] == lines

    pid = after.adopt(memo)

    assert is_running(pid)
    after.say("still here")
    await eventually(lambda: after.lines, TIMEOUT_S)
    assert ["[Echo#abcde] still here"] == after.lines, "what was read is not read again"
    after.say("end")
    assert "ended with an unknown status; its last output: still here" == await after.exit()
    assert [] == list(after.run_dir.glob("output-*"))


async def test_the_same_memo_finds_it_again_and_again(after):
    memo, _ = after.left_by_another()
    pid = after.adopt(memo)
    assert memo == after.launcher.memo(REPLICA)
    after.launcher.let_go()
    assert is_running(pid)

    second = Next(after.run_dir)
    assert pid == second.adopt(memo)
    second.launcher.stop(REPLICA, 0)

    assert (await second.exit()).startswith("ended")
    assert not is_running(pid)
    await second.launcher.close()


async def test_what_it_has_reserved_is_booked_again(after):
    memo, _ = after.left_by_another()
    after.adopt(memo)

    waiting = asyncio.create_task(after.launcher.start(order(after.run_dir, "echo", "Echo#other")))
    event = await next_event(after.launcher)
    assert isinstance(event, Waiting)
    assert "num_cpus=1: of the 1 of this machine 0 are not reserved" == event.why
    after.launcher.stop(event.replica_id, 0)
    with pytest.raises(OSError, match="stopped while it waited"):
        await waiting
    assert ("3",) == after.launcher._ledger.grant_of(REPLICA).gpus
    after.launcher.stop(REPLICA, 0)
    await after.exit()
    assert Grant() == after.launcher._ledger.grant_of(REPLICA)


async def test_a_kill_takes_what_it_started_too(after):
    memo, lines = after.left_by_another("spawn")
    grandchild = int(lines[0].removeprefix("[Echo#abcde] "))
    assert is_running(grandchild)
    after.adopt(memo)

    after.launcher.stop(REPLICA, 0)

    await after.exit()
    await eventually(lambda: not is_running(grandchild), TIMEOUT_S)


async def test_one_that_ended_meanwhile_is_gone_with_what_it_started(after):
    memo, lines = after.left_by_another("spawn")
    grandchild = int(lines[0].removeprefix("[Echo#abcde] "))
    pid = Identity.from_json(memo).pid
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_running(pid), TIMEOUT_S)

    assert None is after.adopt(memo)

    await eventually(lambda: not is_running(grandchild), TIMEOUT_S)
    assert 0 == len(after.launcher.watch())


async def test_a_process_that_has_its_number_by_now_is_left_alone(after):
    memo, _ = after.left_by_another()
    found = Identity.from_json(memo)
    other = identify(os.getpid(), found.grant)
    for changed in (
        Identity(pid=os.getpid(), boot=found.boot, started=other.started - 1),
        Identity(pid=found.pid, boot="before", started=found.started),
    ):
        assert None is after.adopt(changed.to_json())
    assert is_running(found.pid)


async def test_one_whose_launcher_died_before_it_could_say_is_found_by_its_arguments(after):
    memo, _ = after.left_by_another()

    pid = after.adopt("")

    assert Identity.from_json(memo).pid == pid
    assert pid == Identity.from_json(after.launcher.memo(REPLICA)).pid
    assert None is after.launcher.adopt(order(after.run_dir, "echo", "Echo#none"), "")


async def test_one_that_nobody_knows_of_is_ended_and_others_are_not(after, tmp_path):
    memo, _ = after.left_by_another()
    elsewhere = Next(tmp_path / "elsewhere")
    elsewhere.run_dir.mkdir()
    other_memo, _ = elsewhere.left_by_another()

    after.launcher.end_strays()

    stray = Identity.from_json(memo).pid
    await eventually(lambda: not is_running(stray), TIMEOUT_S)
    other = Identity.from_json(other_memo)
    assert other.is_alive()
    elsewhere.adopt(other_memo)
    elsewhere.launcher.end_strays()
    assert other.is_alive()
    await elsewhere.launcher.close()
    assert not other.is_alive()


async def test_one_that_nobody_knows_of_finishes_what_it_has(after):
    memo, _ = after.left_by_another("drain")
    stray = Identity.from_json(memo)
    assert 1 == after.launcher.count_strays()

    after.launcher.end_strays()
    after.launcher.end_strays()

    await eventually(lambda: not stray.is_alive(), TIMEOUT_S)
    assert "drained" == (after.run_dir / "place").read_text()
    await eventually(lambda: not after.launcher.count_strays(), TIMEOUT_S)


async def test_one_that_was_adopted_is_nobody_s_stray(after):
    memo, _ = after.left_by_another("drain")
    pid = after.adopt(memo)

    assert 0 == after.launcher.count_strays()
    after.launcher.end_strays()

    assert is_running(pid)


async def test_one_that_does_not_end_in_time_is_killed(after, monkeypatch):
    monkeypatch.setattr(lasting, "STRAY_TIMEOUT_S", 0.2)
    memo, _ = after.left_by_another("deaf")
    stray = Identity.from_json(memo)

    after.launcher.end_strays()

    await eventually(lambda: not stray.is_alive(), TIMEOUT_S)


@pytest.mark.parametrize("ends", [True, False])
async def test_the_end_of_the_launcher_ends_strays_or_leaves_them(after, ends):
    memo, _ = after.left_by_another("deaf")
    stray = Identity.from_json(memo)
    following = Next(after.run_dir)
    following.launcher.end_strays()

    if not ends:
        following.launcher.let_go()
    await following.launcher.close()

    assert ends is not stray.is_alive()


async def test_its_own_child_tells_how_it_ended(after):
    wanted = order(after.run_dir, "echo")
    pid = await after.launcher.start(wanted)
    assert psutil.Process(pid).pid == Identity.from_json(after.launcher.memo(REPLICA)).pid
    await eventually(lambda: after.lines, TIMEOUT_S)
    after.say("end")
    assert "ended with exit code 4; its last output: waits" == await after.exit()
    assert "" == after.launcher.memo(REPLICA)


def test_the_start_of_a_process_is_not_that_of_one_that_has_ended():
    own = start_time(os.getpid())
    assert own is not None
    with subprocess.Popen(["sleep", "0"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert start_time(child.pid) is None
        assert identify(child.pid, Grant()).started >= own


@pytest.mark.parametrize("text", ["", "7", "[]", '{"pid": 7}', '{"grant": null}'])
def test_a_memo_of_nobody_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  # JSON has texts of its own
        Identity.from_json(text)
