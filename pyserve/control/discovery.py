"""How processes of one user find the mesh that runs on this machine.

A running controller holds a lock in the home directory and writes ``mesh.json`` beside it, both
for the owner only. The lock goes with the process, so a file that a killed controller left can
never keep the next one from starting; readers find it stale because nothing listens any more. The
lock's file holds the record too: a mesh that keeps others from starting can always be found.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import stat
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from pyserve.config import MeshSettings
from pyserve.errors import MeshError, MeshNotFound

TOKEN_BYTES = 32
_WHAT_ONE_IS = "one is hexadecimal digits, in the file that a controller has written"
# sun_path holds 108 bytes with the final zero (unix(7)).
_UNIX_PATH_BYTES_MAX = 107
_LOCK, _RECORD = "mesh.lock", "mesh.json"
_LONGEST_SOCKET_NAME = "replica-0123456789abcdef.sock"


@dataclass(frozen=True, kw_only=True)
class MeshAddress:
    """Where a controller listens, and what proves membership to it.

    Attributes:
        controller: ``unix:path`` or ``host:port``, as channels take it.
        token: the mesh token.
        named_by: the variable or option that names the controller, for people; "": it was found.
    """

    controller: str
    token: bytes
    named_by: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class MeshRecord:
    """What ``mesh.json`` holds, and what a controller reports to the process that started it.

    Attributes:
        controller: ``unix:path`` of the controller.
        controller_tcp: ``host:port`` of the controller.
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
        MeshError: a controller is named, but the token that it asks for is not at hand; or the
            home directory cannot be read.
    """
    record = read_record(settings.home)
    if settings.controller is None:
        return record.address() if record is not None else None
    if settings.token_file is not None:
        token = read_token(settings.token_file, "PYSERVE_TOKEN_FILE")
    elif record is not None and settings.controller in (record.controller, record.controller_tcp):
        token = read_token(Path(record.token_file))
    else:
        raise MeshNotFound(
            f"{settings.controller_is_of} names {settings.controller}, but its token is unknown; "
            "set PYSERVE_TOKEN_FILE to the file that holds it"
        )
    return MeshAddress(
        controller=settings.controller, token=token, named_by=settings.controller_is_of
    )


def read_record(home: Path) -> MeshRecord | None:
    """Return the record in ``home`` if it is this user's and its controller still listens.

    Raises:
        MeshError: nobody knows, because the directory cannot be read.
    """
    return _record_in(home, _RECORD) or _record_in(home, _LOCK)


def _record_in(home: Path, name: str) -> MeshRecord | None:
    try:
        if home.stat().st_uid != os.getuid():
            return None
        record = MeshRecord.from_json((home / name).read_text())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return None
    except OSError as error:
        raise MeshError(
            f"{home / name} cannot be read: {error.strerror}; set PYSERVE_HOME to a directory of "
            f"your own"
        ) from error
    return record if _listens(record.controller.removeprefix("unix:")) else None


def not_found(home: Path, advice: str) -> MeshNotFound:
    """Return the error that no mesh is found in ``home``; the caller raises it.

    Args:
        home: where it was looked for.
        advice: what to do if there is none.
    """
    try:
        pid = _holder(home)
        os.kill(pid, 0)
        # Last, because it may be in the way of a mesh that starts where the process is another one.
        is_held = _is_held(home)
    except (OSError, ValueError):
        is_held = False
    if is_held:
        return MeshNotFound(_held_in_silence(home, pid))
    return MeshNotFound(f"no mesh runs here; {advice}")


def read_token(path: Path, variable: str = "") -> bytes:
    """Read a mesh token from a file that only its owner may read.

    Args:
        path: where it is.
        variable: the environment's, which names it; "": none does.

    Raises:
        MeshError: the file is missing, not private, or empty, or holds something else.
    """
    named = f"{path} ({variable})" if variable else str(path)
    try:
        mode = path.stat().st_mode
        token = bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise MeshError(
            f"the mesh token cannot be read from {named}: {error.strerror}; give the path of the "
            f"file with the token of that mesh, which this user may read"
        ) from error
    except ValueError:
        raise MeshError(f"{named} holds something else than a mesh token: {_WHAT_ONE_IS}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise MeshError(f"{named} holds a mesh token but others may read it; chmod 600 {path}")
    if not token:
        raise MeshError(f"{named} holds no mesh token: {_WHAT_ONE_IS}")
    return token


class MeshHome:
    """The lock, the token and the run directory of a controller, until ``close``.

    Raises:
        MeshError: another controller holds the home directory, it is not private, or it is full.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        _make_private(home)
        self._lock = _lock(home)
        self.token = secrets.token_bytes(TOKEN_BYTES)
        try:
            _note(self._lock, json.dumps({"pid": os.getpid()}))
            self.run_dir = _make_run_dir(home)
            self.token_file = self.run_dir / "token"
            _write_private(self.token_file, self.token.hex())
        except OSError as error:
            os.close(self._lock)
            raise _unwritable(home, error) from error

    def publish(self, record: MeshRecord) -> None:
        """Let others find the mesh, ``mesh.json`` in one step: no reader sees half of it.

        Raises:
            MeshError: the files cannot be written.
        """
        fresh = self.home / f"{_RECORD}.{os.getpid()}"
        try:
            _note(self._lock, record.to_json())
            _write_private(fresh, record.to_json())
            fresh.replace(self.home / _RECORD)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise _unwritable(self.home, error) from error

    def close(self) -> None:
        """Remove what was written and let the lock go. Idempotent."""
        if self._lock < 0:
            return
        (self.home / _RECORD).unlink(missing_ok=True)
        shutil.rmtree(self.run_dir, ignore_errors=True)
        _note(self._lock, "")
        os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(directory, error) from error
    found = directory.stat()
    if found.st_uid != os.getuid():
        raise MeshError(
            f"{directory} belongs to user {found.st_uid}; set PYSERVE_HOME to one of your own"
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise MeshError(f"others may write to {directory}; chmod 700 {directory}")


def _unwritable(home: Path, error: OSError) -> MeshError:
    return MeshError(
        f"{home} cannot hold the files of a mesh: {error.strerror}; set PYSERVE_HOME to a "
        "directory that you may write to"
    )


def _lock(home: Path) -> int:
    try:
        descriptor = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise MeshError(
            f"{_LOCK} cannot be written in {home}: {error.strerror}; set PYSERVE_HOME to a "
            "directory that you may write to"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise _held(home) from None
    # Whoever held the lock before is gone, and what it left is nobody's.
    for left in home.glob("mesh-*"):
        shutil.rmtree(left, ignore_errors=True)
    return descriptor


def _note(lock: int, text: str) -> None:
    """Say in the lock's file who holds it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, text.encode(), 0)


def _held(home: Path) -> MeshError:
    record = read_record(home)
    if record is not None:
        return MeshError(
            f"a mesh runs already in {home} (process {record.pid}); attach to it, end it with "
            "`pyserve shutdown`, or set PYSERVE_HOME to another directory"
        )
    try:
        pid = _holder(home)
    except (OSError, ValueError):  # It has just taken the lock, or has just let it go.
        pid = 0
    return MeshError(_held_in_silence(home, pid))


def _holder(home: Path) -> int:
    """Return the process id in the lock's file; OSError or ValueError if there is none."""
    match json.loads((home / _LOCK).read_text()):
        case {"pid": int(pid)} if pid > 0:
            return pid
    raise ValueError("no process id")


def _is_held(home: Path) -> bool:
    with (home / _LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _held_in_silence(home: Path, pid: int) -> str:
    """Return what is wrong and what to do where a mesh has its home, but does not answer."""
    who, end = (f"process {pid}", f"`kill {pid}`") if pid else ("a process", "a signal")
    return (
        f"{who} holds {home / _LOCK}, but its mesh does not answer: it starts or ends just now, or "
        f"its files have been removed; try again, and if that does not help, end it with {end} "
        f"or set PYSERVE_HOME to another directory"
    )


def _make_run_dir(home: Path) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="mesh-", dir=home))
    if len(os.fsencode(directory / _LONGEST_SOCKET_NAME)) > _UNIX_PATH_BYTES_MAX:
        directory.rmdir()
        directory = Path(tempfile.mkdtemp(prefix="pyserve-mesh-"))
    return directory


def _write_private(path: Path, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
