"""What somebody sees at the terminal: lines of replicas, what changes below them, and ends."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.mesh.apps.chatty import STEPS
from tests.mesh.commands import ROOT, foreground, pyserve, status_of
from tests.support.terminal import Terminal, terminal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 40.0


@contextmanager
def run(environment: dict[str, str], target: str, *arguments: str) -> Iterator[Terminal]:
    """Run a target of the tests in a terminal."""
    command = (sys.executable, "-m", "pyserve", "run", f"tests.mesh.apps.{target}", *arguments)
    with terminal(
        *command, "--address", "127.0.0.1:0", environment=environment, cwd=ROOT
    ) as opened:
        yield opened


def shows(opened: Terminal, text: str) -> None:
    wait_until(lambda: text in opened.text() or opened.process.poll() is not None, _TIMEOUT_S, text)
    assert text in opened.text()


def ready(opened: Terminal) -> str:
    """Wait until an application serves; return its address."""
    shows(opened, "is ready at ")
    return opened.text().partition("is ready at ")[2].split()[0]


def end(opened: Terminal) -> list[str]:
    """End a run; return what has been left to see."""
    opened.process.send_signal(signal.SIGINT)
    assert 0 == opened.wait()
    return opened.rows()


def test_lines_of_replicas_stay_above_what_is_drawn(mesh_environment: dict[str, str]) -> None:
    with run(mesh_environment, "chatty:app") as opened:
        ready(opened)
        rows = end(opened)
    printed = [row for row in rows if "of five" in row]
    assert [f"line {number} of five" for number in range(5)] == [
        row.partition("] ")[2] for row in printed
    ]
    assert all(row.startswith("[Chatty#") for row in printed)
    # Of the bars nothing is left.
    assert not [row for row in rows if "/1 ready" in row]
    assert [] == [row for row in rows if row and not row.startswith(("[Chatty#", "pyserve: "))]


def test_a_row_that_is_written_over_is_one_row(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    """While replicas start, and while they serve."""
    environment = {**mesh_environment, "CHATTY_STEPS": str(tmp_path)}
    with run(environment, "chatty:loading") as opened:
        for step in STEPS:
            shows(opened, f"weights {step}")
            assert 1 == opened.text().count("weights ")
            (tmp_path / step).touch()
        shows(opened, "weights 100%")
        (tmp_path / "constructed").touch()
        url = f"http://{ready(opened)}/"
        answers: list[str] = []
        caller = threading.Thread(
            target=lambda: answers.append(httpx.get(url, timeout=_TIMEOUT_S).text)
        )
        caller.start()
        for step in STEPS:
            shows(opened, f"answer {step}")
            assert 1 == opened.text().count("answer ")
            (tmp_path / f"answer {step}").touch()
        caller.join(_TIMEOUT_S)
        assert ["said"] == answers
        # A line about the end would stand between.
        shows(opened, "answer 100%")
        rows = end(opened)
    assert ["weights 100%", "answer 100%"] == [
        row.partition("] ")[2] for row in rows if "weights" in row or "answer " in row
    ]


def test_elsewhere_a_row_is_its_last_state(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    for name in (*STEPS, "constructed"):
        (tmp_path / name).touch()
    environment = {**mesh_environment, "CHATTY_STEPS": str(tmp_path)}
    with foreground(environment, "tests.mesh.apps.chatty:loading") as running:
        wait_until(lambda: "weights" in running.output())
        (line,) = [line for line in running.output().split("\n") if "weights" in line]
        assert line.endswith("] weights 100%")
        logged = pyserve("logs", "Loading", environment=mesh_environment).stdout
        assert 1 == logged.count("weights")
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(_TIMEOUT_S)


def test_a_replica_that_is_back_is_told(mesh_environment: dict[str, str]) -> None:
    with run(mesh_environment, "small:app") as opened:
        ready(opened)
        (replica,) = status_of(mesh_environment)["applications"]["default"]["deployments"]["Small"][
            "replicas"
        ]
        os.kill(replica["pid"], signal.SIGKILL)
        shows(opened, f"Small: replica {replica['replica_id']} ended (killed by SIGKILL)")
        shows(opened, " s after the one before was lost")
        end(opened)


def test_a_drain_says_what_it_waits_for(mesh_environment: dict[str, str], tmp_path: Path) -> None:
    for name in (*STEPS, "constructed"):
        (tmp_path / name).touch()
    environment = {**mesh_environment, "CHATTY_STEPS": str(tmp_path)}
    with run(environment, "chatty:loading") as opened:
        url = f"http://{ready(opened)}/"
        caller = threading.Thread(target=lambda: httpx.get(url, timeout=_TIMEOUT_S))
        caller.start()
        shows(opened, "answer 10%")
        opened.process.send_signal(signal.SIGINT)
        shows(opened, "draining: 1 call left, ")
        for step in STEPS:
            (tmp_path / f"answer {step}").touch()
        assert 0 == opened.wait()
        caller.join(_TIMEOUT_S)
        # It was drawn, and is gone.
        assert "call left" not in opened.text()


def test_a_constructor_that_raises_is_told_once(mesh_environment: dict[str, str]) -> None:
    """With the exception that it came from, and without frames of the package."""
    done = pyserve(
        *("run", "tests.mesh.apps.chatty:broken", "--address", "127.0.0.1:0"),
        environment=mesh_environment,
    )
    assert 1 == done.returncode
    before, error, after = done.stderr.partition("Error: deployment 'Broken' failed: ")
    assert error
    assert "the weights are missing" not in before
    assert 1 == after.count("Traceback (most recent call last)") - after.count("direct cause of")
    assert 'chatty.py", line' in after
    assert f"{ROOT / 'pyserve'}{os.sep}" not in after


_SCRIPT = """
import pyserve
from tests.mesh.apps.chatty import app

pyserve.start(address="127.0.0.1:0")
pyserve.run(app{arguments})
"""


def test_a_script_that_blocks_says_where_it_serves(mesh_environment: dict[str, str]) -> None:
    script = _SCRIPT.format(arguments=", blocking=True")
    with terminal(
        *(sys.executable, "-c", script), environment=mesh_environment, cwd=ROOT
    ) as opened:
        address = ready(opened)
        assert "said" == httpx.get(f"http://{address}/", timeout=_TIMEOUT_S).text
        assert f"pyserve: plain HTTP at http://{address}/" in opened.rows()
        rows = end(opened)
    assert "pyserve: draining" in rows
    assert "the program ends" not in opened.text()


def test_a_script_that_ends_while_it_serves_says_so(mesh_environment: dict[str, str]) -> None:
    with terminal(
        *(sys.executable, "-c", _SCRIPT.format(arguments="")),
        environment=mesh_environment,
        cwd=ROOT,
    ) as opened:
        assert 0 == opened.wait()
        said = " ".join(opened.rows())
    assert "pyserve: the program ends, and what it serves with it (default)" in said
    assert "blocking=True" in said
