"""A loop in a thread runs what others hand over, and its end leaves nothing behind."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from pyserve.loop_thread import LoopThread

PATIENCE_S = 30.0


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("worker", waits_for_threads=True)
    yield made
    made.close()


def test_work_runs_in_the_thread(thread: LoopThread):
    async def where() -> tuple[str, bool, bool]:
        current = threading.current_thread()
        return current.name, current.daemon, thread.is_current

    assert ("worker", True, True) == thread.run(where()).result(PATIENCE_S)
    assert thread.is_running
    assert not thread.is_current


def test_an_error_reaches_who_asked(thread: LoopThread):
    async def fail() -> None:
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        thread.run(fail()).result(PATIENCE_S)


def test_cancelling_the_future_cancels_the_work(thread: LoopThread):
    begun, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    future = thread.run(wait())
    assert begun.wait(PATIENCE_S)
    future.cancel()

    assert cancelled.wait(PATIENCE_S)


def test_closing_ends_what_runs_and_then_the_thread():
    thread = LoopThread("worker", waits_for_threads=False)
    begun, ended = threading.Event(), list[str]()

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            ended.append("generator")

    async def wait() -> None:
        kept.append(items())
        await anext(kept[0])
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    kept = list[AsyncIterator[int]]()
    thread.run(wait())
    assert begun.wait(PATIENCE_S)
    thread.close()
    thread.close()

    assert ["task", "generator"] == ended
    assert not thread.is_running
    assert thread.loop.is_closed()


@pytest.mark.parametrize("waits", [True, False])
def test_closing_waits_for_threads_where_it_shall(*, waits: bool):
    thread = LoopThread("worker", waits_for_threads=waits)
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        ended.set()

    thread.loop.call_soon_threadsafe(thread.loop.run_in_executor, None, work)
    assert begun.wait(PATIENCE_S)
    closing = threading.Thread(target=thread.close)
    closing.start()
    closing.join(0.1 if waits else PATIENCE_S)
    is_closing = closing.is_alive()
    go_on.set()
    closing.join(PATIENCE_S)

    assert waits == is_closing
    assert ended.wait(PATIENCE_S)


def test_the_loop_may_close_its_own_thread():
    thread = LoopThread("worker", waits_for_threads=False)
    closed = threading.Event()

    def close() -> None:
        thread.close()
        closed.set()

    thread.loop.call_soon_threadsafe(close)
    assert closed.wait(PATIENCE_S)
    thread.close()

    assert not thread.is_running


def test_nothing_runs_in_a_closed_loop(thread: LoopThread):
    thread.close()
    work = asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="closed"):
        thread.run(work)
    work.close()


@pytest.mark.slow
def test_a_process_that_forgets_to_close_ends():
    script = """
        import asyncio
        from pyserve.loop_thread import LoopThread

        thread = LoopThread("forgotten", waits_for_threads=True)
        thread.run(asyncio.sleep(3600))
        print("done")
    """
    assert "done" == output_of(script)


@pytest.mark.slow
def test_a_fork_leaves_the_loop_of_its_parent_alone():
    script = """
        import asyncio, os, warnings
        from pyserve.loop_thread import LoopThread

        warnings.simplefilter("ignore", DeprecationWarning)  # Of forks beside threads.
        thread = LoopThread("shared", waits_for_threads=True)
        child = os.fork()
        if child == 0:
            thread.close()
            os._exit(0 if not thread.is_running else 1)
        assert os.waitpid(child, 0)[1] == 0
        print(thread.run(asyncio.sleep(0, "still there")).result(30))
        thread.close()
    """
    assert "still there" == output_of(script)


def output_of(script: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
