"""The tests' own tools can fail."""

import asyncio
import os
import socket
import subprocess
import sys
import uuid

import pytest

from tests.support.leftovers import SESSION_VARIABLE, processes_of, sockets_below
from tests.support.scheduling import together
from tests.support.waiting import eventually, wait_until


def test_a_wait_ends_when_its_condition_holds():
    values = iter([0, 0, 1])

    wait_until(lambda: next(values))

    assert [] == list(values)


def test_a_wait_that_ends_without_its_condition_says_so():
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: it rains \(last value: 0\)"):
        wait_until(lambda: 0, timeout_s=0.02, what="it rains")


async def test_an_asynchronous_wait_leaves_the_loop_free():
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, event.set)

    await eventually(event.is_set)
    with pytest.raises(AssertionError, match="not within"):
        await eventually(lambda: False, timeout_s=0.02)


def test_a_process_is_found_by_the_variable_it_inherited():
    session = uuid.uuid4().hex
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        env={**os.environ, SESSION_VARIABLE: session},
    ) as child:
        wait_until(lambda: [line for line in processes_of(session) if code in line])
        assert child.stdin is not None
        child.stdin.close()
        child.wait(timeout=30)

    assert [] == processes_of(session)


def test_a_socket_file_is_found(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        (tmp_path / "plain").touch()
        listener.bind(os.path.relpath(tmp_path / "s"))

        assert [str(tmp_path / "s")] == sockets_below(tmp_path)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("tests/mesh/ingress/test_routes.py::test_a[x::y/z]", "tests/mesh/ingress"),
        ("tests/mesh/control/test_rest.py::test_a", "tests/mesh/control/test_rest.py"),
        ("tests/unit/test_support.py::Test::test_a", "tests/unit/test_support.py"),
    ],
)
def test_tests_with_a_mesh_of_their_folder_run_in_one_process(test: str, expected: str) -> None:
    assert expected == together(test)
