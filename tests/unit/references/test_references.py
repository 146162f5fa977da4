"""Two processes' worth of references in one, with the real socket between them."""

import asyncio
import errno
import gc
import os
import socket
import stat
import threading
from pathlib import Path

import numpy
import pytest

from pyserve.errors import BackPressure, ReferenceLost, RequestTimeout, RuntimeForked
from pyserve.references import Descriptor, Limits, References, holding, wire
from pyserve.references.client import _Connection
from pyserve.references.remote import RemoteHolders
from tests.support.waiting import wait_until

TOKEN = b"the mesh token, 32 bytes of it!!"
VALUE = bytes(range(256)) * 1024


@pytest.fixture
def make(tmp_path):
    made = []

    def make(**changes):
        settings = {"node": "here", "token": TOKEN, "run_dir": tmp_path, **changes}
        made.append(References(**settings))
        return made[-1]

    yield make
    for references in made:
        references.close()
    assert [] == list(tmp_path.iterdir()), "a socket is left"


@pytest.fixture
def holder(make):
    return make(holder_id="holder", application="app", deployment="D")


@pytest.fixture
def consumer(make):
    return make()


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def is_free(references):
    gc.collect()
    wait_until(lambda: references.held_count == 0, what="everything is freed")


def test_nothing_runs_before_the_first_use(make, tmp_path):
    references = make()
    own = Descriptor(
        holder_id=references.holder_id,
        node="here",
        unix_path="",
        key="k",
        size_bytes=1,
        codec="raw",
    )
    references.release(own)
    assert not references._loop.has_started
    assert [] == list(tmp_path.iterdir())


def test_a_value_is_a_view_of_the_holders_memory(holder, consumer):
    array = numpy.arange(100_000, dtype="f8")
    descriptor = holder.hold([array.tobytes()], "raw")
    assert (array.nbytes, "raw", "app") == (
        descriptor.size_bytes,
        descriptor.codec,
        descriptor.application,
    )
    view = consumer.fetch_blocking(descriptor, 10.0)
    assert isinstance(view, memoryview)
    assert view.readonly
    received = numpy.frombuffer(view)
    assert (array == received).all()
    assert 0 == received.ctypes.data % 4096
    with pytest.raises(ValueError, match="read-only"):
        received[0] = 1


def test_the_socket_is_private(holder, tmp_path):
    descriptor = holder.hold([VALUE], "raw")
    path = Path(descriptor.unix_path)
    assert tmp_path == path.parent.parent
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)


def test_a_run_folder_with_a_long_path_is_not_used(make, tmp_path):
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    references = make(run_dir=folder)
    descriptor = references.hold([VALUE], "raw")
    assert VALUE == make().fetch_blocking(descriptor, 10.0)
    assert not descriptor.unix_path.startswith(str(folder))
    references.close()
    assert not Path(descriptor.unix_path).exists()
    folder.rmdir()


async def test_values_are_fetched_in_a_loop(holder, consumer):
    descriptors = [holder.hold([VALUE, bytes((index,))], "raw") for index in range(50)]
    views = await asyncio.gather(*(consumer.fetch(each) for each in descriptors))
    assert [VALUE + bytes((index,)) for index in range(50)] == [bytes(view) for view in views]


def test_own_values_need_no_socket(holder):
    descriptor = holder.hold([VALUE], "raw")
    view = holder.fetch_blocking(descriptor)
    assert VALUE == view
    holder.release(descriptor)
    with pytest.raises(ReferenceLost):
        wait_until(lambda: not holder.fetch_blocking(descriptor))
    assert 1 == holder.held_count
    del view
    is_free(holder)


def test_a_value_is_freed_when_it_is_released_and_every_view_is_gone(holder, consumer):
    descriptor = holder.hold([VALUE], "raw")
    array = numpy.frombuffer(consumer.fetch_blocking(descriptor, 10.0), "u1")[5:]
    consumer.release(descriptor)
    with pytest.raises(ReferenceLost, match="was freed"):
        wait_until(lambda: not consumer.fetch_blocking(descriptor, 10.0))
    assert 1 == holder.held_count, "the array still looks at it"
    assert bytes(array) == VALUE[5:]
    del array
    is_free(holder)
    assert 0 == holder.held_bytes


def test_a_release_needs_no_fetch(holder, consumer):
    consumer.release(holder.hold([VALUE], "raw"))
    is_free(holder)


def test_values_that_nobody_uses_are_freed_by_time(make):
    holder = make(limits=Limits(unused_s=0.05))
    for _ in range(3):
        holder.hold([VALUE], "raw")
    is_free(holder)


@pytest.mark.parametrize("node", ["here", "elsewhere"])
async def test_after_the_end_of_the_mesh_a_value_is_lost(holder, make, node):
    """As of every other value that cannot be had: one exception for those who fetch."""
    consumer = make(node=node, remote=RemoteHolders(lambda *_: pytest.fail("not asked")))
    descriptor = holder.hold([VALUE], "raw")
    consumer.close()
    with pytest.raises(ReferenceLost, match="let go of its mesh"):
        await consumer.fetch(descriptor)
    with pytest.raises(ReferenceLost, match="let go of its mesh"):
        consumer.fetch_blocking(descriptor, 5.0)


def test_a_value_that_was_in_use_when_the_others_were_looked_at_still_ages(make):
    """Its reader may have died silently, and perhaps no other value is ever held after it."""
    holder, consumer = make(limits=Limits(unused_s=1.0)), make()
    view = consumer.fetch_blocking(holder.hold([VALUE], "raw"), 10.0)
    wait_until(lambda: not holder._holding._is_timed, what="nothing ages")
    assert 1 == holder.held_count
    del view
    is_free(holder)


def test_an_own_value_that_cannot_be_mapped_is_not_in_use(holder, monkeypatch):
    descriptor = holder.hold([VALUE], "raw")

    def refuse(fd: int, size_bytes: int) -> None:
        raise OSError(errno.EMFILE, "too many")

    with monkeypatch.context() as patch:
        patch.setattr(holding, "map_value", refuse)
        with pytest.raises(OSError, match="too many"):
            holder.fetch_blocking(descriptor)
    holder.forget(descriptor.key)
    assert 0 == holder.held_count


def test_beyond_its_limit_a_process_says_what_it_holds(make):
    holder = make(limits=Limits(held_bytes_max=3 * len(VALUE)))
    kept = [holder.hold([VALUE], "raw") for _ in range(3)]
    with pytest.raises(BackPressure, match=r"3 values have 0\.8 of 1 MiB.*_by_reference=False"):
        holder.hold([VALUE], "raw")
    holder.release(kept[0])
    wait_until(lambda: holder.held_count == 2)
    holder.hold([VALUE], "raw")


@pytest.mark.parametrize("sizes", [[], [0], [0, 0]])
def test_empty_values_can_be_held(holder, consumer, sizes):
    descriptor = holder.hold([bytes(size) for size in sizes], "raw")
    assert b"" == bytes(holder.fetch_blocking(descriptor))


def test_a_value_without_memory_of_its_own_is_lent_all_the_same(holder, consumer):
    """A process with few descriptors left keeps values as bytes."""
    first = holder.hold([VALUE], "raw")
    consumer.fetch_blocking(first, 10.0)
    holder.release(first)
    is_free(holder)
    holder._holding._segments_max = 0
    before = open_files()
    descriptor = holder.hold([VALUE], "raw")
    view = consumer.fetch_blocking(descriptor, 10.0)
    assert VALUE == view == holder.fetch_blocking(descriptor)
    del view
    holder.release(descriptor)
    is_free(holder)
    assert before >= open_files()


def failing(number):
    def fail(_name, _flags):
        raise OSError(number, os.strerror(number))

    return fail


def test_a_value_for_which_there_is_no_descriptor_is_kept_as_bytes(holder, monkeypatch, caplog):
    monkeypatch.setattr("os.memfd_create", failing(errno.EMFILE))
    descriptor = holder.hold([VALUE, b"end"], "raw")
    assert VALUE + b"end" == holder.fetch_blocking(descriptor)
    assert "costs a copy" in caplog.text


def test_a_machine_without_memory_pushes_back(holder, monkeypatch):
    monkeypatch.setattr("os.memfd_create", failing(errno.ENOMEM))
    with pytest.raises(BackPressure, match="no memory to hold 262144 bytes"):
        holder.hold([VALUE], "raw")
    assert (0, 0) == (holder.held_count, holder.held_bytes)


def test_a_process_with_another_token_gets_nothing(holder, make, caplog):
    stranger = make(token=b"another token, also 32 bytes ...")
    descriptor = holder.hold([VALUE], "raw")
    with pytest.raises(ReferenceLost, match="refused the connection"):
        stranger.fetch_blocking(descriptor, 10.0)
    assert "has not proven the mesh token" in caplog.text
    assert VALUE == make().fetch_blocking(descriptor, 10.0)


def test_a_holder_with_another_token_is_not_believed(make, caplog):
    """The listener at the path of a descriptor may be any process."""
    holder = make(token=b"another token, also 32 bytes ...")
    descriptor = holder.hold([VALUE], "raw")
    holder._server.welcome = lambda _nonce, _message: bytes((wire.WELCOME,)) + bytes(32)
    with pytest.raises(ReferenceLost):
        make().fetch_blocking(descriptor, 10.0)
    assert "the holder holder" in caplog.text or "is disconnected" in caplog.text


def test_a_process_of_another_user_gets_nothing(holder, consumer, monkeypatch, caplog):
    descriptor = holder.hold([VALUE], "raw")
    monkeypatch.setattr("pyserve.references.server.peer_uid", lambda _socket: os.getuid() + 1)
    with pytest.raises(ReferenceLost):
        consumer.fetch_blocking(descriptor, 10.0)
    assert "may not take values" in caplog.text


@pytest.mark.parametrize(
    "message", [b"\x63garbage", b"", bytes(5000), bytes((wire.TAKE, 1)), b"\x06\xff\xfe"]
)
def test_a_connection_with_garbage_is_closed_and_the_others_live(holder, consumer, message):
    descriptor = holder.hold([VALUE], "raw")
    assert VALUE == consumer.fetch_blocking(descriptor, 10.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.settimeout(10.0)
        other.connect(descriptor.unix_path)
        proof = wire.answer(TOKEN, other.recv(100), bytes(32))
        other.send(proof)
        assert wire.WELCOME == other.recv(100)[0]
        other.send(message)
        if message:
            assert b"" == other.recv(100)
    assert VALUE == consumer.fetch_blocking(descriptor, 10.0)


def test_a_holder_that_is_gone_is_noticed(make, consumer):
    holder = make()
    descriptor = holder.hold([VALUE], "raw")
    view = consumer.fetch_blocking(descriptor, 10.0)
    holder.close()
    with pytest.raises(ReferenceLost):
        consumer.fetch_blocking(descriptor, 10.0)
    assert VALUE == view, "what was mapped stays"


def test_a_descriptor_of_nobody_is_refused_at_once(consumer):
    for node, path in (("here", "/nowhere/socket"), ("elsewhere", ""), ("here", "")):
        descriptor = Descriptor(
            holder_id="h", node=node, unix_path=path, key="k", size_bytes=1, codec="raw"
        )
        with pytest.raises(ReferenceLost, match="cannot be reached from here"):
            consumer.fetch_blocking(descriptor, 10.0)
        consumer.release(descriptor)


async def test_a_fetch_that_is_cancelled_gives_the_value_back(holder, consumer):
    descriptor = holder.hold([VALUE], "raw")
    task = asyncio.ensure_future(consumer.fetch(descriptor))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    holder.release(descriptor)
    assert await holder.drain(10.0)


def test_a_holder_that_does_not_answer_is_waited_for_as_long_as_said(holder, consumer, monkeypatch):
    descriptor = holder.hold([VALUE], "raw")
    monkeypatch.setattr(_Connection, "_on_message", lambda *_: None)
    with pytest.raises(RequestTimeout, match=r"within 0\.05 s"):
        consumer.fetch_blocking(descriptor, 0.05)


async def test_a_drain_waits_for_what_is_held(holder, consumer):
    descriptor = holder.hold([VALUE], "raw")
    view = await consumer.fetch(descriptor)
    assert not await holder.drain(0.02)
    waiting = asyncio.ensure_future(holder.drain(10.0))
    await asyncio.sleep(0)
    consumer.release(descriptor)
    del view
    gc.collect()
    assert await waiting
    assert await holder.drain(0.0)


def test_threads_hold_fetch_and_release_at_once(holder, consumer):
    errors = []

    def work(number):
        try:
            for index in range(40):
                value = VALUE + bytes((number, index))
                descriptor = holder.hold([value], "raw")
                assert value == consumer.fetch_blocking(descriptor, 20.0)
                consumer.release(descriptor)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert [] == errors
    is_free(holder)


@pytest.mark.slow
def test_ten_thousand_values_leave_nothing(holder, consumer):
    """Descriptors and bytes are flat."""
    small = bytes(2000)

    def turn(count):
        for _ in range(count):
            descriptor = holder.hold([small], "raw")
            consumer.fetch_blocking(descriptor, 10.0)
            consumer.release(descriptor)
        is_free(holder)
        return open_files()

    before = turn(50)
    assert before >= turn(10_000)
    assert 0 == holder.held_bytes
    assert 0 == holder._holding._segments


# From Python 3.12 on, a fork with threads warns; here the child uses none of them.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_uses_nothing_of_its_parent(holder, consumer):
    """User code may fork; the child has no thread, and must not take the socket away."""
    descriptor = holder.hold([VALUE], "raw")
    view = consumer.fetch_blocking(descriptor, 10.0)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert -1 == holder._server._socket.fileno()
            assert {} == holder._holding._memory
            holder.release(descriptor)
            try:
                holder.hold([VALUE], "raw")
            except RuntimeForked:
                holder.close()
                consumer.close()
                code = 0
        finally:
            os._exit(code)
    assert 0 == os.waitpid(pid, 0)[1]
    assert VALUE == consumer.fetch_blocking(descriptor, 10.0) == view


@pytest.mark.skipif(not holding.IS_SUPPORTED, reason="memfds are of Linux")
def test_closing_twice_is_closing_once(make):
    references = make()
    descriptor = references.hold([VALUE], "raw")
    references.close()
    references.close()
    assert not Path(descriptor.unix_path).exists()
    assert 0 == references.held_count
    with pytest.raises(ReferenceLost, match="let go of its mesh"):
        references.hold([VALUE], "raw")
