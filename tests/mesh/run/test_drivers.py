"""``pyserve.run`` in drivers of every kind: scripts, threads, loops; and what they leave behind."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.mesh.commands import ROOT
from tests.support.leftovers import SESSION_VARIABLE, processes_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 50.0

HEAD = """
    import asyncio, os, sys, threading, time
    import grpc
    import pyserve
    from services.echo import echo_pb2, echo_pb2_grpc
    from tests.mesh.apps.small import Small

    pyserve.start(address="127.0.0.1:0")

    def echo(text):
        with grpc.insecure_channel(pyserve.status().addresses[0]) as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            reply = stub.Echo(
                echo_pb2.EchoRequest(payload=text.encode()),
                timeout=30,
                metadata=[("application", "default")],
            )
            return reply.payload.decode()

    async def echo_through(handle, text):
        async with handle.channel() as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            reply = await stub.Echo(echo_pb2.EchoRequest(payload=text.encode()), timeout=30)
            return reply.payload.decode()
"""


class Driver:
    """A script in a process of its own."""

    def __init__(self, script: str, tmp_path: Path, environment: dict[str, str]) -> None:
        file = tmp_path / "driver.py"
        file.write_text(textwrap.dedent(HEAD) + textwrap.dedent(script))
        self.log = tmp_path / "driver.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", str(file)],
                cwd=tmp_path,
                env={**environment, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.log.read_text() or self.process.poll() is not None, 40)
        assert text in self.log.read_text(), self.log.read_text()

    def finish(self) -> str:
        """Wait for an orderly end; return what the mesh and the script have written."""
        try:
            self.process.communicate(b"\n", _TIMEOUT_S)  # Whoever waits for a line may go on.
            code = self.process.returncode
        finally:
            self.close()
        assert 0 == code, self.log.read_text()
        return self.log.read_text()

    def close(self) -> None:
        """End the script in any case. Idempotent."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def drive(tmp_path: Path, mesh_environment: dict[str, str]):
    drivers: list[Driver] = []

    def start(script: str) -> Driver:
        drivers.append(Driver(script, tmp_path, mesh_environment))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()


def test_a_script_deploys_classes_of_its_own_and_is_not_run_again(drive) -> None:
    """The class of ``__main__`` travels by value, its imports and globals with it."""
    output = drive("""
        print("the script runs")
        GREETING = "hello "

        @pyserve.deployment(num_replicas=2)
        class Mine(echo_pb2_grpc.EchoServicer):
            async def Echo(self, request, context):
                return echo_pb2.EchoReply(payload=GREETING.encode() + request.payload)

        handle = pyserve.run(Mine.bind())
        assert ("Mine", "default") == (handle.deployment_name, handle.app_name)
        assert "hello you" == echo("you")
        assert 2 == len(pyserve.status().applications["default"].deployments["Mine"].replicas)
    """).finish()
    assert 1 == output.count("the script runs")
    assert "Mine: 2 of 2 replicas ready" in output
    assert "pyserve: application 'default' is ready at 127.0.0.1:" in output


def test_a_handles_channel_serves_generated_stubs_without_the_ingress(drive) -> None:
    drive("""
        handle = pyserve.run(Small.bind("in process "))
        assert "in process x" == asyncio.run(echo_through(handle, "x"))
        assert "in process y" == asyncio.run(echo_through(handle, "y")), "a second loop"
    """).finish()


def test_run_works_in_a_thread_and_in_a_running_loop(drive) -> None:
    drive("""
        async def in_loop():
            handle = pyserve.run(Small.bind("loop "), name="one", route_prefix="/one")
            return await echo_through(handle, "x")

        assert "loop x" == asyncio.run(in_loop())
        pyserve.delete("one")
        thread = threading.Thread(target=pyserve.run, args=(Small.bind("thread "),))
        thread.start()
        thread.join()
        assert "thread x" == echo("x")
    """).finish()


def test_an_application_of_the_same_name_is_replaced_before_run_returns(drive) -> None:
    drive("""
        pyserve.run(Small.bind("old "))
        assert "old x" == echo("x")
        pyserve.run(Small.bind("new "))
        assert {"new x"} == {echo("x") for _ in range(20)}
    """).finish()


def test_a_deployment_reaches_another_one_through_its_handle(drive) -> None:
    drive("""
        @pyserve.deployment
        class Front(echo_pb2_grpc.EchoServicer):
            def __init__(self, back):
                self.back = back
                self.stub = None

            async def Echo(self, request, context):
                if self.stub is None:
                    self.stub = echo_pb2_grpc.EchoStub(self.back.channel())
                reply = await self.stub.Echo(request, timeout=30)
                return echo_pb2.EchoReply(payload=b"front, " + reply.payload)

        handle = pyserve.run(Front.bind(Small.bind("back, ")))
        assert "front, back, x" == asyncio.run(echo_through(handle, "x"))
    """).finish()


def test_a_failed_deployment_raises_with_the_replicas_traceback(drive) -> None:
    drive("""
        from tests.mesh.apps import broken
        try:
            pyserve.run(broken.Raises.bind())
        except pyserve.DeploymentFailed as error:
            assert "Raises" == error.deployment
            assert "FileNotFoundError: model.npz is not there" in error.summary
            assert 'raise FileNotFoundError("model.npz' in error.remote_traceback
            assert error.remote_traceback in str(error)
        else:
            raise AssertionError("it was deployed")
        pyserve.run(Small.bind("still works "))
        assert "still works x" == echo("x")
    """).finish()


def test_waiting_for_the_replicas_can_be_bounded(drive) -> None:
    drive("""
        from tests.mesh.apps import broken
        try:
            pyserve.run(broken.Hangs.options(startup_timeout_s=60).bind(), timeout_s=0.5)
        except pyserve.PyserveError as error:
            assert "longer than 0.5 s" in str(error), error
        else:
            raise AssertionError("it was deployed")
        pyserve.shutdown(grace_s=0)
    """).finish()


def test_a_second_driver_attaches_and_the_first_one_goes_on(drive, tmp_path) -> None:
    first = drive("""
        pyserve.run(Small.bind("first "))
        print("ready at", pyserve.status().addresses[0], flush=True)
        sys.stdin.readline()
        assert "first x" == echo("x")
    """)
    first.wait_for("ready at")
    other = tmp_path / "other"
    other.mkdir()
    environment = {**os.environ, **first_environment(first)}
    script = """
        pyserve.run(Small.options(name="Second").bind(), name="second")
    """
    head, _, _ = HEAD.partition("    pyserve.start")
    file = other / "second.py"
    file.write_text(textwrap.dedent(head) + textwrap.dedent(script))
    second = subprocess.run(
        [sys.executable, str(file)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert 0 == second.returncode, second.stderr
    assert "attached to the mesh of process" in second.stderr
    first.finish()


def first_environment(driver: Driver) -> dict[str, str]:
    """Return the variables of a running driver that name its mesh."""
    raw = Path(f"/proc/{driver.process.pid}/environ").read_bytes().split(b"\0")
    pairs = [item.decode().partition("=") for item in raw if item]
    wanted = {"PYSERVE_HOME", SESSION_VARIABLE, "PYTHONPATH"}
    return {key: value for key, _, value in pairs if key in wanted}


@pytest.mark.parametrize(
    ("script", "ready"),
    [
        ("pyserve.run(Small.bind()); print('deployed', flush=True); time.sleep(60)", "deployed"),
        (
            "from tests.mesh.apps.broken import Hangs\n"
            "pyserve.run(Hangs.options(startup_timeout_s=60).bind())",
            "0 of 1 replicas ready",
        ),
        (
            "pyserve.run(Small.bind())\n"
            "child = os.fork()\n"
            "if child == 0:\n    time.sleep(60)\n    os._exit(0)\n"
            "print('child:', child, flush=True)\n"
            "print('deployed', flush=True)\ntime.sleep(60)",
            "deployed",
        ),
    ],
    ids=["serving", "constructor hangs", "driver has forked"],
)
def test_killing_the_driver_ends_its_mesh(
    drive, script: str, ready: str, mesh_environment: dict[str, str]
) -> None:
    driver = drive(script)
    driver.wait_for(ready)
    os.kill(driver.process.pid, signal.SIGKILL)
    driver.process.wait()

    def mesh_processes() -> list[str]:
        left = processes_of(mesh_environment[SESSION_VARIABLE])
        return [each for each in left if "pyserve." in each]

    wait_until(lambda: not mesh_processes(), 25)
    if child := re.search(r"child: (\d+)", driver.log.read_text()):
        os.kill(int(child[1]), signal.SIGKILL)  # It lives: it did not end with the mesh.


def test_a_fork_of_the_driver_cannot_use_the_mesh_and_does_not_end_it(drive) -> None:
    drive("""
        handle = pyserve.run(Small.bind())
        pid = os.fork()
        if pid == 0:
            try:
                handle.channel()
            except RuntimeError as error:
                assert "fork of process" in str(error)
                sys.exit(7)
            sys.exit(8)
        assert 7 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert "x" == echo("x")
    """).finish()


def test_children_of_multiprocessing_live_beside_a_routed_channel(drive) -> None:
    drive("""
        import multiprocessing

        handle = pyserve.run(Small.bind())
        assert "x" == asyncio.run(echo_through(handle, "x"))
        context = multiprocessing.get_context("fork")
        for _ in range(20):
            child = context.Process(target=time.sleep, args=(0.05,))
            child.start()
            child.join(30)
            assert 0 == child.exitcode
        assert "x" == asyncio.run(echo_through(handle, "x"))
    """).finish()


@pytest.mark.parity("S-08")
def test_a_reservation_beyond_the_machine_fails_with_both_figures(drive) -> None:
    output = drive("""
        class Greedy:
            def __call__(self): ...

        Greedy = pyserve.deployment(ray_actor_options={"num_gpus": 1000})(Greedy)
        try:
            pyserve.run(Greedy.bind())
        except pyserve.DeploymentFailed as error:
            assert "num_gpus is 1000, but this machine has " in error.summary, error.summary
        else:
            raise AssertionError("it was deployed without its devices")
    """).finish()
    assert "cannot be started: num_gpus is 1000" in output
    assert "Traceback" not in output
