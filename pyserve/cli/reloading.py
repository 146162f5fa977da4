"""``pyserve run --reload``: source files are watched, and what rests upon an edit is rolled.

Only what differs is rolled, as by ``pyserve deploy``. What cannot be loaded, or does not come up,
leaves the version before serving, and says so.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from pyserve.cli.applications import is_file
from pyserve.cli.commands import CommandFailed, print_error, print_failures
from pyserve.cli.loader import marks_of
from pyserve.cli.target import Asked
from pyserve.config import inherited_environment
from pyserve.driver.progress import apply, progress_view
from pyserve.errors import PyserveError
from pyserve.wire.v1 import control_pb2

if TYPE_CHECKING:
    from pyserve.control.state.specs import Run
    from pyserve.driver.session import Session

# Editors write a file in several steps, and several files at once. Arbitrary: as long as nobody
# notices, and not longer than somebody saves one file after the other.
_SETTLE_MS = 50
_SETTLE_MS_MAX = 1000
# How often the watcher looks whether it is to end.
_LOOK_MS = 200
_JOIN_TIMEOUT_S = 2.0
_SERVES_ON = "pyserve: the version before serves on\n"


class Loader:
    """Loads what a command line names, each time in a process of its own.

    The next process is there before it is needed, and has imported all but user code.

    Args:
        asked: What it names.

    Attributes:
        files: The source files that the last load found below the working directory, or where
            modules are looked for first, and what tells each from what it becomes.
        failed: The last load found no applications.
    """

    def __init__(self, asked: Asked) -> None:
        if asked.target == "-":
            raise click.UsageError("--reload watches files, and standard input is none")
        self._asked = json.dumps(asdict(asked))
        self._always = [Path(asked.target).absolute()] if is_file(asked.target) else []
        self._process: subprocess.Popen[bytes] | None = None
        self._report = -1
        self.files: dict[Path, list[int]] = {}
        self.failed = False

    def load(self) -> control_pb2.ApplyRequest:
        """Return the applications.

        Raises:
            CommandFailed: They cannot be loaded.
        """
        self.failed = True
        before = {each: marks_of(each) for each in {*self.files, *self._always}}
        self.prepare()
        process, reader = self._process, self._report
        assert process is not None, "it has just been prepared"
        try:
            with os.fdopen(reader) as report:
                self._report = -1
                # One that fails early reads nothing.
                with contextlib.suppress(BrokenPipeError):
                    assert process.stdin is not None, "asked for"
                    process.stdin.write(self._asked.encode())
                    process.stdin.close()
                text = report.read()
            status = process.wait()
        finally:
            self.stop()
            self._process = None
        if not text:
            raise CommandFailed(
                f"the process that imports the applications ended with exit status {status}; its "
                f"output above says why"
            )
        found = json.loads(text)
        files = {Path(each): marks for each, marks in found["files"].items()}
        # A load that failed may have come further before.
        kept = before if found["error"] else {each: before[each] for each in self._always}
        self.files = kept | files
        if found["error"]:
            raise CommandFailed(found["error"], found["traceback"])
        self.failed = False
        return control_pb2.ApplyRequest.FromString(base64.b64decode(found["request"]))

    def prepare(self) -> None:
        """Start the process of the next load, unless it is there."""
        if self._process is not None:
            return
        self._report, writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pyserve.cli.loader", str(writer)],
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno(),
                pass_fds=(writer,),
                env=inherited_environment({}),
                # Ctrl-C is for the run, which ends a load by itself.
                start_new_session=True,
            )
        finally:
            os.close(writer)

    def close(self) -> None:
        """End the process that waits for the next load. Idempotent."""
        self.stop()
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None, "asked for"
            process.stdin.close()
            process.wait()
        if self._report >= 0:
            os.close(self._report)
            self._report = -1

    def folders(self) -> set[Path]:
        """Return where the files are, as far as those folders are there, or the working one."""
        return {file.parent for file in self.files if file.parent.is_dir()} or {Path.cwd()}

    def changed(self) -> set[Path]:
        """Return the files that are not what they were when they were loaded."""
        return {file for file, marks in self.files.items() if marks_of(file) != marks}

    def concerns(self, path: Path) -> bool:
        """Say whether a file that has changed may make a difference.

        Whatever would mend a load that failed may be in a file that nobody has imported yet.
        """
        return path in self.files or (self.failed and path.suffix == ".py")

    def stop(self) -> None:
        """End a load that goes on; any thread may call."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


class Reloading:
    """Watches and reloads while it is entered, in a thread.

    Args:
        loader: Has loaded once.
        session: Of the mesh.
        run: Whose applications they are.
    """

    def __init__(self, loader: Loader, session: Session, run: Run) -> None:
        self._loader = loader
        self._session = session
        self._run = run
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="pyserve-reload", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._loader.stop()
        self._thread.join(_JOIN_TIMEOUT_S)
        self._loader.close()

    def _follow(self) -> None:
        try:
            self._watch()
        except Exception as error:
            if not self._closed.is_set():
                message = (
                    f"files are watched no more ({type(error).__name__}: {error}); what runs "
                    f"serves on, and the next edit needs this command anew"
                )
                print_error(message, traceback.format_exc())

    def _watch(self) -> None:
        from watchfiles import watch

        self._loader.prepare()
        while not self._closed.is_set():
            folders = self._loader.folders()
            is_first = True
            for changes in watch(
                *folders,
                watch_filter=lambda _change, path: self._loader.concerns(Path(path)),
                debounce=_SETTLE_MS_MAX,
                step=_SETTLE_MS,
                rust_timeout=_LOOK_MS,
                yield_on_timeout=True,
                stop_event=self._closed,
                recursive=False,
                raise_interrupt=False,
            ):
                changed = {Path(path) for _, path in changes}
                if is_first:
                    # Nobody has watched since the load until now.
                    changed |= self._loader.changed()
                    is_first = False
                if changed:
                    self._tell(changed)
                    if folders != self._loader.folders():
                        break

    def _tell(self, changed: Iterable[Path]) -> None:
        names = ", ".join(sorted(os.path.relpath(each) for each in changed))
        sys.stderr.write(f"pyserve: {names} changed\n")
        try:
            self._reload(names)
        except PyserveError as error:
            self._tell_failure(str(error), getattr(error, "traceback", ""))
        except Exception as error:
            # The mesh may be away, or the machine be short of something; the next edit tries again.
            message = f"nothing was reloaded: {type(error).__name__}: {error}"
            self._tell_failure(message, traceback.format_exc())
        finally:
            if not self._closed.is_set():
                self._loader.prepare()

    def _tell_failure(self, message: str, trace: str) -> None:
        if not self._closed.is_set():
            print_error(message, trace)
            sys.stderr.write(_SERVES_ON)

    def _reload(self, names: str) -> None:
        begun, before = time.monotonic(), self._replicas()
        request = self._loader.load()
        view = progress_view(self._session.screen)
        outcome = apply(self._session.client, request, run=self._run, view=view)
        if self._closed.is_set():
            return  # The run ends, and that is no failure of what was deployed.
        print_failures(outcome.failed)
        if outcome.failed:
            sys.stderr.write(_SERVES_ON)
        after = self._replicas()
        restarted = [name for name, found in after.items() if found != before.get(name)]
        if gone := sorted(before.keys() - after.keys()):
            sys.stderr.write(f"pyserve: {', '.join(gone)} ended\n")
        if restarted:
            took_s = time.monotonic() - begun
            sys.stderr.write(
                f"pyserve: {names}: restarted {', '.join(restarted)} in {took_s:.2f} s\n"
            )
        elif not outcome.failed:
            sys.stderr.write(f"pyserve: {names}: nothing has to be restarted\n")

    def _replicas(self) -> dict[str, frozenset[str]]:
        """Return the replicas of each deployment, those that end left out."""
        applications = self._session.client.status().applications
        return {
            each.name if len(applications) == 1 else f"{application.name}/{each.name}": frozenset(
                replica.replica_id for replica in each.replicas if replica.state != "STOPPING"
            )
            for application in applications
            for each in application.deployments
        }
