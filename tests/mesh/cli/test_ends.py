"""Commands leave no call to the end of the interpreter.

There its finalizer would wait for a lock that one of grpc's threads may have held when the
interpreter ended that thread: once in a thousand times, on a busy machine, and then for ever.
"""

import subprocess
import sys

import pytest

from tests.mesh.commands import ROOT, foreground

# Several processes start one after the other, which takes its time on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
_TIMEOUT_S = 50.0
_COUNTED = """
import atexit, gc, sys
from grpc import _channel

def count():
    calls = [each for each in gc.get_objects() if isinstance(each, _channel._Rendezvous)]
    print(len(calls), "calls are left", file=sys.stderr)

atexit.register(count)
"""
_COMMAND = """
from pyserve.cli import main
main(sys.argv[1:])
"""
_DRIVER = """
import pyserve
from tests.mesh.apps.broken import Misspelt

pyserve.start(address="127.0.0.1:0")
try:
    pyserve.run(Misspelt.bind(), timeout_s=0.001)
except pyserve.errors.MeshUnavailable as error:
    print(error)
pyserve.run(Misspelt.bind())
"""


def ends(environment: dict[str, str], *arguments: str, program: str = _COMMAND) -> tuple[int, str]:
    """Run one command; return its status and the number of calls that are left."""
    done = subprocess.run(
        [sys.executable, "-c", _COUNTED + program, *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()[-1]


def test_calls_are_gone_before_the_interpreter_ends(mesh_environment: dict[str, str]) -> None:
    call = ("call", "services.echo.Echo/Echo", "payload=you", "--address")
    with foreground(mesh_environment, "tests.mesh.apps.small:app", "--in-process") as running:
        assert (0, "0 calls are left") == ends(mesh_environment, *call, running.address)
    # The error of a call that has failed is the call.
    assert (1, "0 calls are left") == ends(mesh_environment, *call, running.address)


def test_a_deploy_that_fails_is_gone_before_the_interpreter_ends(
    mesh_environment: dict[str, str],
) -> None:
    run = ("run", "tests.mesh.apps.broken:Misspelt", "--address", "127.0.0.1:0")
    assert (1, "0 calls are left") == ends(mesh_environment, *run)


def test_a_program_whose_deploy_fails_leaves_no_call(mesh_environment: dict[str, str]) -> None:
    assert (1, "0 calls are left") == ends(mesh_environment, program=_DRIVER)
