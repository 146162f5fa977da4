"""How many calls are in user code at once, and changing it while calls run."""

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.mesh.commands import ROOT

pytestmark = pytest.mark.slow

HEAD = """
    import time
    import pyserve
    from tests.mesh.concurrency.apps import Gauge

    def deploy(limit):
        return pyserve.run(Gauge.options(max_ongoing_requests=limit).bind())

    def replica():
        replicas = pyserve.status().applications["default"].deployments["Gauge"].replicas
        (found,) = [each for each in replicas if each.state == "RUNNING"]
        return found.replica_id

    def inside(handle, calls, seconds=0.3):
        handle.reset.remote().result(timeout_s=20)
        pending = [handle.work.remote(seconds) for _ in range(calls)]
        most = max(each.result(timeout_s=40) for each in pending)
        assert most == handle.reset.remote().result(timeout_s=20)
        return most

    pyserve.start(address="127.0.0.1:0")
"""


@pytest.fixture
def drive(tmp_path: Path, mesh_environment: Mapping[str, str]):
    def run(script: str, **environment: str) -> str:
        file = tmp_path / "driver.py"
        file.write_text(textwrap.dedent(HEAD) + textwrap.dedent(script))
        done = subprocess.run(
            [sys.executable, "-W", "error", str(file)],
            cwd=tmp_path,
            env={**mesh_environment, **environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=50,
            check=False,
        )
        assert 0 == done.returncode, done.stdout
        return done.stdout

    return run


@pytest.mark.parity("S-11")
@pytest.mark.parity("S-13")
def test_no_more_calls_than_the_limit_are_in_user_code(drive) -> None:
    """Calls beyond the limit wait at the caller, and every call is answered."""
    drive("""
        assert 3 == inside(deploy(3), calls=20)
    """)


@pytest.mark.parity("S-11")
def test_def_methods_run_in_as_many_threads_as_the_limit_allows(drive) -> None:
    """More than asyncio's own pool has, where the limit allows it."""
    drive("""
        assert 50 == inside(deploy(50), calls=80, seconds=3.0)
    """)


@pytest.mark.parity("S-13")
def test_the_limit_changes_while_calls_run_and_the_replica_stays(drive) -> None:
    output = drive("""
        handle = deploy(2)
        name = replica()
        begun = time.monotonic()
        pending = [handle.work.remote(1.0) for _ in range(40)]   # twenty seconds, two at a time
        time.sleep(0.2)
        deploy(40)
        most = max(each.result(timeout_s=40) for each in pending)
        assert time.monotonic() - begun < 14.0
        assert 30 <= most <= 40
        assert name == replica()

        deploy(1)
        assert 1 == inside(handle, calls=5, seconds=0.1)
        assert name == replica()
    """)
    assert "its replicas take 40 requests at once from now on" in output


def test_the_same_again_and_any_other_change_make_new_replicas(drive) -> None:
    drive("""
        deploy(3)
        names = [replica()]
        deploy(3)
        names.append(replica())
        pyserve.run(Gauge.options(max_ongoing_requests=4, max_replicas_per_node=7).bind())
        names.append(replica())
        assert 3 == len(set(names))
    """)


def test_a_source_file_that_changed_makes_new_replicas(drive, tmp_path: Path) -> None:
    """The limit differs, but the code behind the import path may too."""
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    drive("""
        import os
        import helper

        deploy(3)
        name = replica()
        os.utime(helper.__file__, ns=(1, 1))
        deploy(4)
        assert name != replica()
    """)


@pytest.mark.parity("S-56")
@pytest.mark.parametrize("separate", ["0", "1"])
def test_a_parked_call_is_sent_while_its_callers_loop_stands_still(drive, separate: str) -> None:
    """The router has threads of its own, whatever the setting says."""
    drive(
        """
        import asyncio

        async def main(handle):
            first = handle.work.remote(0.3)
            parked = handle.stamp.remote()
            await asyncio.sleep(0.1)
            time.sleep(3.0)
            woke = time.monotonic()
            await first
            assert await parked < woke - 0.5

        asyncio.run(main(deploy(1)))
        """,
        PYSERVE_RUN_ROUTER_IN_SEPARATE_LOOP=separate,
    )


@pytest.mark.parity("S-55")
@pytest.mark.parametrize("separate", ["0", "1"])
def test_duties_have_a_thread_where_the_setting_says_so(drive, separate: str) -> None:
    drive(
        f"""
        names = deploy(1).threads.remote().result(timeout_s=20)
        assert {separate == "1"} is ("pyserve-duties" in names), names
        """,
        PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD=separate,
    )
