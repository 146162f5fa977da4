"""Local testing mode: what ``run``, ``delete``, ``status`` and ``shutdown`` do in one process."""

import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import pyserve
from pyserve.driver.local import find_local
from pyserve.errors import RuntimeForked
from pyserve.exceptions import MeshNotFound, RequestTimeout, SerializationError
from pyserve.types import ApplicationName, DeploymentName
from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.leftovers import sockets_below
from tests.support.waiting import wait_until

CLOSED: list[str] = []


@pyserve.deployment
class Greeter:
    def __init__(self, word: str = "hello") -> None:
        self._word = word
        self._gate = asyncio.Event()
        self._thread_gate = threading.Event()

    def __call__(self, name: str) -> str:
        return f"{self._word} {name}"

    async def wait(self) -> str:
        await self._gate.wait()
        return self._word

    def block(self) -> str:
        self._thread_gate.wait()
        return self._word

    async def let_go(self) -> None:
        self._gate.set()
        self._thread_gate.set()

    def where(self) -> tuple[int, str, object]:
        context = pyserve.get_replica_context()
        return os.getpid(), threading.current_thread().name, context.servable_object is self

    async def aclose(self) -> None:
        CLOSED.append(self._word)


@pyserve.deployment
class Outer:
    def __init__(self, greeter: pyserve.DeploymentHandle) -> None:
        self._greeter = greeter

    async def __call__(self, name: str) -> str:
        greeting: str = await self._greeter.remote(name)
        return greeting.upper()

    async def run_another(self) -> None:
        pyserve.run(Greeter.bind(), name="another", local_testing_mode=True)


@pyserve.deployment
class Broken:
    def __init__(self) -> None:
        raise ValueError("no weights")

    def __call__(self) -> None: ...


@pyserve.deployment
class Endless:
    def __init__(self, greeter: pyserve.DeploymentHandle) -> None:
        self._greeter = greeter

    async def warmup(self) -> None:
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Leave no thread and no application behind."""
    CLOSED.clear()
    before = _threads()
    yield
    pyserve.shutdown()
    assert find_local() is None
    wait_until(lambda: _threads() <= before, what="the threads have ended")


def _threads() -> set[threading.Thread]:
    # Threads that threading has not started keep an entry of theirs after their end.
    return {each for each in threading.enumerate() if not isinstance(each, threading._DummyThread)}


def run(application, **options):
    return pyserve.run(application, local_testing_mode=True, **options)


@pytest.mark.parity("G-56")
def test_a_graph_runs_in_this_process_on_a_thread_of_its_own():
    handle = run(Outer.bind(Greeter.bind("good day")))

    assert "GOOD DAY YOU" == handle.remote("you").result(timeout_s=30)
    pid, thread, is_itself = (
        pyserve.DeploymentHandle("Greeter", "default").where.remote().result(timeout_s=30)
    )
    assert os.getpid() == pid
    assert threading.current_thread().name != thread
    assert is_itself


@pytest.mark.parity("G-56")
def test_the_spelling_of_ray_serve_is_accepted():
    handle = pyserve.run(Greeter.bind(), _local_testing_mode=True)

    assert find_local() is not None
    assert "hello you" == handle.remote("you").result(timeout_s=30)


async def test_it_works_inside_a_running_loop():
    handle = run(Greeter.bind())

    assert "hello loop" == await handle.remote("loop")


def test_what_replicas_listen_at_is_private_and_removed():
    before = _listening()
    handle = run(Outer.bind(Greeter.bind()))
    handle.remote("you").result(timeout_s=30)
    runtime = find_local()
    assert runtime is not None
    folder = runtime.mesh.place.folder
    assert 2 == len(sockets_below(folder))
    assert 0o700 == folder.stat().st_mode & 0o777
    assert before == _listening()

    pyserve.shutdown()

    assert not folder.exists()


def _listening() -> set[object]:
    """Return the ports that this process listens at."""
    found = psutil.Process().net_connections("inet")
    return {each.laddr for each in found if each.status == psutil.CONN_LISTEN}


def test_a_port_of_the_loopback_does_where_the_path_of_a_socket_is_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    handle = run(Outer.bind(Greeter.bind()))

    assert "HELLO YOU" == handle.remote("you").result(timeout_s=30)
    assert [] == sockets_below(folder)


def test_run_again_replaces_and_closes_what_was_there():
    run(Greeter.bind("old"))
    handle = run(Greeter.bind("new"))

    assert "new you" == handle.remote("you").result(timeout_s=30)
    assert ["old"] == CLOSED


def test_a_replaced_instance_ends_its_calls_first():
    handle = run(Greeter.options(graceful_shutdown_timeout_s=20).bind("old"))
    call = handle.wait.remote()
    handle.let_go.remote().result(timeout_s=30)

    run(Greeter.bind("new"))

    assert "old" == call.result(timeout_s=30)


def test_a_call_that_outlives_the_grace_is_ended():
    handle = run(Greeter.options(graceful_shutdown_timeout_s=0.05).bind("old"))
    call = handle.wait.remote()
    with pytest.raises(TimeoutError):
        call.result(timeout_s=0.05)

    handle_after = run(Greeter.bind("new"))

    with pytest.raises(pyserve.PyserveError, match="the server is shutting down"):
        call.result(timeout_s=30)
    assert "new you" == handle_after.remote("you").result(timeout_s=30)


async def test_a_call_that_is_cancelled_before_its_first_step_gives_its_place_back():
    handle = run(Greeter.options(max_ongoing_requests=1).bind())
    for _ in range(3):
        handle.wait.remote().cancel()

    assert "hello you" == await asyncio.wait_for(handle.remote("you"), 30)


async def test_a_chosen_place_that_no_call_could_take_is_given_back():
    handle = run(Greeter.options(max_ongoing_requests=1).bind())
    json = handle.options(request_serialization="json")
    async with handle.choose_replica() as selection:
        with pytest.raises(SerializationError):
            json.dispatch(selection, object())

    assert "hello you" == await asyncio.wait_for(handle.remote("you"), 30)


async def test_who_no_longer_waits_for_a_place_does_not_hinder_the_end():
    handle = run(Greeter.options(max_ongoing_requests=1, graceful_shutdown_timeout_s=0.1).bind())
    async with handle.choose_replica():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), handle.choose_replica():
                pass
        await asyncio.to_thread(pyserve.delete, "default")

    assert ["hello"] == CLOSED


def test_applications_are_deleted_one_by_one():
    first = run(Greeter.bind("first"), name="first")
    second = run(Greeter.bind("second"), name="second")
    assert {"first", "second"} == set(pyserve.status().applications)

    pyserve.delete("first")

    assert ["first"] == CLOSED
    with pytest.raises(MeshNotFound, match="no application 'first' runs"):
        first.options().remote("you")
    assert "second you" == second.remote("you").result(timeout_s=30)


def test_status_tells_what_runs():
    run(Outer.bind(Greeter.bind()), name="app")

    deployments = pyserve.status().applications["app"].deployments
    assert {"Outer", "Greeter"} == set(deployments)
    (replica,) = deployments["Greeter"].replicas
    assert ("RUNNING", os.getpid()) == (replica.state, replica.pid)


def test_a_constructor_that_raises_fails_the_run_with_its_traceback():
    with pytest.raises(pyserve.DeploymentFailed, match="no weights") as caught:
        run(Outer.bind(Broken.bind()))

    assert "in __init__" in caught.value.remote_traceback
    assert {} == pyserve.status().applications


def test_a_failed_run_leaves_the_older_version_alone():
    handle = run(Outer.bind(Greeter.bind()))

    with pytest.raises(pyserve.DeploymentFailed):
        run(Outer.bind(Broken.bind()))

    assert "HELLO YOU" == handle.remote("you").result(timeout_s=30)


def test_a_run_that_takes_too_long_leaves_nothing():
    with pytest.raises(TimeoutError):
        run(Endless.bind(Greeter.bind()), timeout_s=1.0)

    wait_until(lambda: CLOSED == ["hello"], 30, "what had started is closed")


async def test_a_deployment_cannot_wait_for_applications_on_the_loop():
    handle = run(Outer.bind(Greeter.bind()))

    with pytest.raises(pyserve.PyserveError, match=r"asyncio\.to_thread"):
        await handle.run_another.remote()


async def test_a_channel_leads_to_the_replica():
    @pyserve.deployment
    class Echoing(echo_pb2_grpc.EchoServicer):
        async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
            return echo_pb2.EchoReply(payload=request.payload * 2)

    async with run(Echoing.bind()).channel() as channel:
        reply = await echo_pb2_grpc.EchoStub(channel).Echo(echo_pb2.EchoRequest(payload=b"ha"))

    assert b"haha" == reply.payload


def test_arguments_travel_as_to_a_mesh():
    """What cannot be pickled fails here too, not first in production."""
    with pytest.raises(pyserve.PyserveError, match="cannot travel"):
        run(Greeter.bind(threading.Lock()))


def test_a_deadline_passes_while_a_thread_is_busy():
    handle = run(Greeter.bind())

    with pytest.raises(RequestTimeout):
        handle.options(timeout_s=0.05).block.remote().result(timeout_s=5)
    handle.let_go.remote().result(timeout_s=30)


def test_a_deployment_may_call_what_was_bound_to_it_before_it_is_ready():
    @pyserve.deployment
    class Eager:
        def __init__(self, greeter: pyserve.DeploymentHandle) -> None:
            self._greeter = greeter

        async def warmup(self) -> None:
            self._greeting: str = await self._greeter.remote("you")

        def __call__(self) -> str:
            return self._greeting

    handle = run(Eager.bind(Greeter.bind()))

    assert "hello you" == handle.remote().result(timeout_s=30)


def test_a_deployment_that_starts_later_cannot_be_called_yet():
    @pyserve.deployment
    class Early:
        async def warmup(self) -> None:
            await pyserve.DeploymentHandle("Outer", "default").remote("you")

    with pytest.raises(pyserve.PyserveError, match="default/Outer is not deployed"):
        run(Outer.bind(Early.bind()))
    assert {} == pyserve.status().applications


def test_a_thread_that_does_not_come_back_holds_no_end_up():
    handle = run(Greeter.options(graceful_shutdown_timeout_s=0.05).bind())
    call = handle.block.remote()
    with pytest.raises(TimeoutError):
        call.result(timeout_s=0.05)
    runtime = find_local()
    assert runtime is not None
    replicas = runtime.mesh.applications[ApplicationName("default")].replicas
    greeter: Any = replicas[DeploymentName("Greeter")].context.servable_object

    pyserve.delete("default")

    assert ["hello"] == CLOSED
    with pytest.raises(pyserve.PyserveError, match="the server is shutting down"):
        call.result(timeout_s=30)
    greeter._thread_gate.set()


def test_a_fork_says_that_it_is_one():
    handle = run(Greeter.bind())
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            pyserve.delete("default")
        except RuntimeForked:
            os.write(writing, b"refused")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert b"refused" == pipe.read()
    assert (child, 0) == os.waitpid(child, 0)
    assert "hello you" == handle.remote("you").result(timeout_s=30)


def test_held_values_are_freed_with_what_refers_to_them():
    handle = run(Outer.bind(Greeter.bind()))
    runtime = find_local()
    assert runtime is not None
    references = runtime.mesh.references
    greeter = pyserve.DeploymentHandle("Greeter", "default")

    held = greeter.remote("x" * 200_000)._to_object_ref_sync()
    assert 200_006 == len(pyserve.get(held))
    assert 200_006 == len(handle.remote("x" * 200_000).result(timeout_s=30))
    del held

    wait_until(lambda: references.held_count == 0, 5, "nothing is held")
