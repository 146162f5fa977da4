"""The real HAProxy, in front of a mesh or for a look at a configuration."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

_TIMEOUT_S = 20.0


def why_not() -> str | None:
    """Say why HAProxy cannot be used here; None if it can."""
    found = program()
    if found is None:
        return "haproxy is not installed (apt-get install haproxy)"
    told = subprocess.run([found, "-v"], capture_output=True, text=True, timeout=10, check=True)
    version = told.stdout.split("version ", 1)[1].split(" ")[0]
    if tuple(map(int, version.split(".")[:2])) < (2, 6):
        return f"this haproxy is {version}; configurations are for 2.6 and later"
    return None


def program() -> str | None:
    """Return where HAProxy is; Debian has it outside of a user's PATH."""
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")


def complaints(config: Path) -> str:
    """Return what HAProxy has to say about a configuration; "": nothing."""
    found = program()
    assert found is not None
    done = subprocess.run(
        [found, "-c", "-f", str(config)], capture_output=True, text=True, timeout=20, check=False
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("[NOTICE]")]
    return "\n".join(said) if said or not done.returncode else f"exit {done.returncode}"


@contextmanager
def running(config: Path) -> Iterator[Path]:
    """Run HAProxy with a master until the block ends; yield the path of the master's socket."""
    found = program()
    assert found is not None
    master = config.with_suffix(".sock")
    log = config.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [found, "-W", "-S", f"{master},mode,600", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(lambda: process.poll() is not None or _listens(master), _TIMEOUT_S)
        assert process.poll() is None, log.read_text()
        yield master
    except BaseException as error:
        error.add_note(log.read_text())
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()


def sends_to(master: Path, server: str) -> bool:
    """Tell whether all workers behind that socket have a server, and hold it for up."""
    try:
        if "# old workers" in ask(master, "show proc"):
            return False  # One that still has connections, or has not read its signal yet.
        lines = ask(master, "@1 show servers state").splitlines()
    except ConnectionError:
        return False  # The master starts anew.
    # be_id be_name srv_id srv_name srv_addr srv_op_state …; 2 is "running" (management, 9.3).
    states = [fields[5] for line in lines if (fields := line.split()[:6])[3:4] == [server]]
    return bool(states) and set(states) == {"2"}


def ask(master: Path, command: str) -> str:
    """Return what a master answers to a command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(str(master))
        connection.sendall(f"{command}\n".encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile() as answer:
            return answer.read()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
