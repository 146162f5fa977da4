"""Ctrl-C while the command line is being imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyserve

_PROGRAM = """
import signal, sys

# Where the tests run in the background of a shell it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from pyserve.cli import main
main(["run", "tests.mesh.apps.small:app"])
"""


@pytest.mark.parametrize(
    "module", ["click", "pyserve.cli.commands", "pyserve.cli.run", "pyserve.driver.session"]
)
def test_ctrl_c_during_the_imports_is_quiet(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, module],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (130, "", "") == (done.returncode, done.stdout, done.stderr.strip())


def test_little_is_imported_before_ctrl_c_is_quiet() -> None:
    program = "import sys, pyserve.cli; print(*sys.modules)"
    command = [sys.executable, "-S", "-c", program]  # What site-packages add is not ours.
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(Path(pyserve.__path__[0]).parent)},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert not {"typing", "re", "click"} & set(done.stdout.split())


_ANYWHERE = """
import itertools, os, signal, sys
from pyserve.cli.run import _Interrupt

lines = itertools.count()
at = 0

def trace(_frame, event, _argument):
    # As by opcodes, between any two of which Python may run the handler.
    _frame.f_trace_opcodes = True
    if event == "opcode" and next(lines) == at:
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGTERM)
    return trace

while sys.gettrace() is None and at < 10_000:
    lines, interrupt = itertools.count(), _Interrupt()
    with interrupt:
        # The application serves.
        assert not interrupt.wait(0)
        sys.settrace(trace)
        came = interrupt.wait(0.001)
        if sys.gettrace() is not None:
            break
        assert came or interrupt.wait(0), at
    at += 1
sys.settrace(None)
print(at)
"""


_UNHEARD = """
import os, signal
from pyserve.cli.run import _Interrupt

reader, writer = os.pipe()
os.dup2(writer, 2)
os.close(reader)
os.close(writer)
interrupt = _Interrupt()
with interrupt:
    assert not interrupt.wait(0)
    os.kill(os.getpid(), signal.SIGTERM)
    print(interrupt.wait(30))
"""


def test_a_signal_counts_though_nobody_reads_what_is_said_to_it() -> None:
    """As after ``pyserve run ... 2>&1 | head``."""
    done = subprocess.run(
        [sys.executable, "-c", _UNHEARD], capture_output=True, text=True, timeout=50, check=False
    )
    assert (0, "True\n") == (done.returncode, done.stdout)


@pytest.mark.skipif(
    (3, 12) == sys.version_info[:2],
    reason="CPython 3.12 tells no opcodes of a frame that asks for them when it is called",
)
def test_a_signal_may_come_at_any_place_of_the_wait() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ANYWHERE],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    assert int(done.stdout) > 3
    assert int(done.stdout) <= done.stderr.count("draining")
