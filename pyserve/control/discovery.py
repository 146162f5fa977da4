"""Lets processes of one user find the mesh that runs on this machine.

A running controller holds a lock in the home directory and writes ``mesh.json`` beside it, both
for the owner only. The lock goes with the process, so a file that a killed controller left can
never keep the next one from starting; readers find it stale because nothing listens any more. The
lock's file holds the record too: a mesh that keeps others from starting can always be found.
If somebody else removes any of these files while the mesh runs, they are recreated at the same
paths.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pyserve.config import MeshSettings
from pyserve.config.tls import PLAIN_TCP_REMEDY
from pyserve.control.home import (
    LOCK,
    TOKEN_BYTES,
    Lease,
    holder_of,
    is_held,
    note_holder,
    read_token,
    take_lock,
)
from pyserve.errors import MeshError, MeshHeld, MeshNotFound
from pyserve.folders import PrivateFolder, RunFolder, remove_left
from pyserve.types import MeshAddress

_LOGGER = logging.getLogger(__name__)
_RECORD, _TOKEN = "mesh.json", "token"
_LASTING_RUN = "run"
# What a controller that was killed may have left in a lasting run directory, and would stand in the
# way. Its socket stays until the next one replaces it: clients see that a next one may come.
_OF_A_CONTROLLER = ("controller-1.sock", "builtin.sock")
_HELD_LOOK_INTERVAL_S = 0.05  # arbitrary; a mesh takes a second to start


@dataclass(frozen=True, kw_only=True)
class MeshRecord:
    """What ``mesh.json`` holds, and what a controller reports to the process that started it.

    Attributes:
        controller: ``unix:path`` of the controller.
        controller_tcp: ``host:port`` of the controller; "": no other machine reaches it.
        token_file: path of the mesh token.
        pid: of the controller.
        version: of pyserve, in the controller's process.
        addresses: where the ingress listens.
    """

    controller: str
    controller_tcp: str
    token_file: str
    pid: int
    version: str
    addresses: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MeshRecord:
        """Read a record; ``ValueError`` if the text is not one."""
        try:
            values = json.loads(text)
            values["addresses"] = tuple(values["addresses"])
            return cls(**values)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a mesh record: {error}") from error

    def address(self) -> MeshAddress:
        """Read the token and return what a client needs.

        Raises:
            MeshError: the token's file cannot be read.
        """
        return MeshAddress(controller=self.controller, token=read_token(Path(self.token_file)))


def find_mesh(settings: MeshSettings) -> MeshAddress | None:
    """Return the mesh that applies: the named controller's, else the one in the home directory.

    Returns:
        ``None`` when no controller is named and none runs.

    Raises:
        MeshError: a controller is named, but the token that it asks for is not at hand, or would
            go there in plain text; or the home directory cannot be read.
    """
    if settings.controller is None:
        record = read_record(settings.home)
        return record.address() if record is not None else None
    if not settings.node.may_carry_token(settings.controller):
        raise MeshError(
            f"{settings.controller_is_of} names {settings.controller}, to which the mesh token "
            f"would pass over the network in plain text; {PLAIN_TCP_REMEDY}"
        )
    token = (
        read_token(settings.token_file, "PYSERVE_TOKEN_FILE")
        if settings.token_file is not None
        else _token_beside(settings.home, settings.controller, settings.controller_is_of)
    )
    return MeshAddress(
        controller=settings.controller, token=token, named_by=settings.controller_is_of
    )


def _token_beside(home: Path, controller: str, named_by: str) -> bytes:
    """Return the token of a controller that is the one of this home."""
    record = read_record(home)
    if record is not None and controller in (record.controller, record.controller_tcp):
        return read_token(Path(record.token_file))
    raise MeshNotFound(
        f"{named_by} names {controller}, but its token is unknown; set PYSERVE_TOKEN_FILE to the "
        "file that holds it"
    )


def read_record(home: Path) -> MeshRecord | None:
    """Return the record in ``home`` if its controller still listens.

    Raises:
        MeshError: unknown, because the directory cannot be read, or cannot be trusted.
    """
    try:
        folder = PrivateFolder(home, make=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(home, error) from error
    try:
        return _record_in(folder, _RECORD) or _record_in(folder, LOCK)
    finally:
        folder.close()


def _record_in(folder: PrivateFolder, name: str) -> MeshRecord | None:
    try:
        record = MeshRecord.from_json(folder.read(name))
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return None
    except OSError as error:
        raise _unreadable(folder.path / name, error) from error
    return record if listens(record.controller.removeprefix("unix:")) else None


def _unreadable(path: Path, error: OSError) -> MeshError:
    return MeshError(
        f"{path} cannot be read: {error.strerror}; set PYSERVE_HOME to a directory of your own"
    )


def wait_while_held(home: Path, deadline: float) -> bool:
    """Block while a process holds ``home`` whose mesh does not answer: it starts or ends.

    Args:
        home: where it was found to be held.
        deadline: on ``time.monotonic()``.

    Returns:
        Whether that came to an end before the deadline.

    Raises:
        MeshError: the directory cannot be read.
    """
    news = threading.Event()  # Never set: locks of others announce nothing.
    while is_held(home) and read_record(home) is None:
        if time.monotonic() >= deadline:
            return False
        news.wait(_HELD_LOOK_INTERVAL_S)
    return True


def not_found(home: Path, advice: str) -> MeshNotFound:
    """Return the error that no mesh is found in ``home``; the caller raises it.

    Args:
        home: where it was looked for.
        advice: what to do if there is none.
    """
    try:
        pid = holder_of(home)
        os.kill(pid, 0)
    except (OSError, ValueError):
        pid = 0
    # Last, because it may be in the way of a mesh that starts where the process is another one.
    if pid and is_held(home):
        return MeshNotFound(_held_in_silence(home, pid))
    return MeshNotFound(f"no mesh runs here; {advice}")


class MeshHome:
    """The lock, the token and the run directory of a controller, until ``close``.

    Args:
        home: the home directory.
        lasting: the next controller has the same token and run directory.
        token: of the mesh; none: that of the earlier controller, or a new one.
        has_replicas: says whether replicas of a run directory live, which know the token of the
            earlier controller; lasting ones only.
        lease: in place of a lock and a run directory of its own; it closes the descriptors.

    Attributes:
        token: the mesh token.
        run_dir: where sockets go; the same for as long as this lives.
        token_file: where the token is.
        former: the record of the earlier controller, if it was killed; of the same mesh only.
        is_in_use: replicas go on after ``close``, which then leaves the run directory to them.

    Raises:
        MeshHeld: another controller holds the home directory.
        MeshError: it is not private, or it is full.
    """

    def __init__(
        self,
        home: Path,
        *,
        lasting: bool = False,
        token: bytes = b"",
        has_replicas: Callable[[Path], bool] = lambda _: False,
        lease: Lease | None = None,
    ) -> None:
        self._path = home
        self._record = ""
        self._lock = -1
        self.former: MeshRecord | None = None
        self.is_in_use = lasting or lease is not None
        self._lasting = lasting
        self._folder = _open_home(home)
        try:
            if lease is None:
                self._take(_LASTING_RUN if lasting else "")
            else:
                self._inherit(lease)
            for name in _OF_A_CONTROLLER:
                if not listens(str(self._run.path / name)):
                    self._run.folder.remove(name)
        except OSError as error:
            self._let_go()
            raise _unwritable(home, error) from error
        except MeshError:
            self._let_go()
            raise
        self.run_dir = self._run.path
        self.token_file = self._token_folder().path / _TOKEN
        try:
            self.token = token or self._token_left(has_replicas) or secrets.token_bytes(TOKEN_BYTES)
            # With the sockets too, where it stays as long as replicas need it.
            self._run.folder.write(_TOKEN, self.token.hex())
            self._token_folder().write(_TOKEN, self.token.hex())
        except OSError as error:
            self.close()
            raise _unwritable(home, error) from error
        except MeshError:
            self.close()
            raise

    def _take(self, run_name: str) -> None:
        self._lock = _lock(self._folder)
        # Files with our mark that a dead process has left belong to nobody.
        remove_left(self._folder)
        if self._lasting:
            self.former = _left_record(self._folder)
        note_holder(self._lock, json.dumps({"pid": os.getpid()}))
        self._run = RunFolder(self._folder, run_name)

    def _inherit(self, lease: Lease) -> None:
        self._lock = lease.lock
        if not self._folder.is_file(LOCK, self._lock):
            os.close(self._lock)
            self._lock = -1
            self._lock = _lock(self._folder)
        self.former = _left_record(self._folder)
        self._run = RunFolder(self._folder, held=(lease.run_dir, lease.mark))

    def lease(self) -> Lease:
        """Return what another process needs to take it over; the descriptors stay open here."""
        return Lease(lock=self._lock, mark=self._run.mark, run_dir=self.run_dir)

    def let_go(self) -> None:
        """Leave it unchanged to the holders of the lease. Idempotent."""
        if self._folder.descriptor >= 0:
            self._run.close(remove=False)
            self._let_go()

    def _token_folder(self) -> PrivateFolder:
        return self._folder if self._lasting else self._run.folder

    def _token_left(self, has_replicas: Callable[[Path], bool]) -> bytes:
        """Return the previous controller's token if this one keeps it, else ``b""``."""
        if self._token_folder().has(_TOKEN):
            return read_token(self.token_file)
        if self._run.folder.has(_TOKEN) and has_replicas(self.run_dir):
            _LOGGER.warning(
                "the mesh token has been removed from %s, but replicas that know it go on: it "
                "stays. End them, and remove it again, to have another one",
                self.token_file,
            )
            return read_token(self.run_dir / _TOKEN)
        return b""

    @property
    def home(self) -> Path:
        """Where it is, without links."""
        return self._folder.path

    def publish(self, record: MeshRecord) -> None:
        """Let others find the mesh, ``mesh.json`` in one step: no reader sees half of it.

        Raises:
            MeshError: the files cannot be written.
        """
        try:
            note_holder(self._lock, record.to_json())
            self._folder.write(_RECORD, record.to_json())
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self._record = record.to_json()

    def restore(self) -> bool:
        """Recreate, at the same paths, the files that somebody else has removed.

        Sockets are not restored here: each process restores those at which it listens.

        Returns:
            Whether something was missing.

        Raises:
            MeshHeld: another mesh has taken the home directory meanwhile. The run directory is
                there all the same.
            MeshError: it cannot be made.
        """
        try:
            home_was_gone = not self._folder.is_in_place()
            if home_was_gone:
                self._reopen()
            was_gone = self._run.restore()
            if not self._token_folder().has(_TOKEN):
                self._token_folder().write(_TOKEN, self.token.hex())
                was_gone = True
            return self._restore_record() or was_gone or home_was_gone
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def _reopen(self) -> None:
        folder = _open_home(self._path)
        self._folder.close()
        self._folder = folder

    def _restore_record(self) -> bool:
        if self._lock >= 0 and not self._folder.is_file(LOCK, self._lock):
            os.close(self._lock)
            self._lock = -1
        if self._lock < 0:
            self._lock = _lock(self._folder)
        elif self._folder.has(_RECORD):
            return False
        note_holder(self._lock, self._record)
        self._folder.write(_RECORD, self._record)
        return True

    def close(self) -> None:
        """Remove what was written and let the lock go. Idempotent."""
        if self._folder.descriptor < 0:
            return
        self._run.close(remove=not self.is_in_use)
        try:
            # Without the lock the record is another mesh's.
            if self._lock >= 0:
                if not self.is_in_use:
                    self._folder.remove(_RECORD)
                note_holder(self._lock, "")
        except OSError as error:
            _LOGGER.warning("%s stays: %s", self._folder.path / _RECORD, error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _left_record(folder: PrivateFolder) -> MeshRecord | None:
    """Return the record of a controller that died before it could remove it."""
    try:
        return MeshRecord.from_json(folder.read(_RECORD))
    except (OSError, ValueError):
        return None


def listens(path: str) -> bool:
    """Say whether a process listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _open_home(path: Path) -> PrivateFolder:
    try:
        folder = PrivateFolder(path, make=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    folder.hold()
    return folder


def _unwritable(home: Path, error: OSError) -> MeshError:
    return MeshError(
        f"{home} cannot hold the files of a mesh: {error.strerror}; set PYSERVE_HOME to a "
        "directory that you may write to"
    )


def _lock(home: PrivateFolder) -> int:
    """Take the lock of a home; return its open file."""
    lock = take_lock(home)
    if lock is None:
        raise _held(home.path)
    return lock


def _held(home: Path) -> MeshHeld:
    record = read_record(home)
    if record is not None:
        return MeshHeld(
            f"a mesh runs already in {home} (process {record.pid}); attach to it, end it with "
            "`pyserve shutdown`, or set PYSERVE_HOME to another directory"
        )
    try:
        pid = holder_of(home)
    except (OSError, ValueError):  # It has just taken the lock, or has just let it go.
        pid = 0
    return MeshHeld(_held_in_silence(home, pid))


def _held_in_silence(home: Path, pid: int) -> str:
    """Return what is wrong and what to do where a mesh has its home, but does not answer."""
    who, end = (f"process {pid}", f"`kill {pid}`") if pid else ("a process", "a signal")
    return (
        f"{who} holds {home / LOCK}, but its mesh does not answer: it starts or ends just now, or "
        f"its files have been removed; try again, and if that does not help, end it with {end} "
        f"or set PYSERVE_HOME to another directory"
    )
