"""Folders that only this user may write to, and those of them that a mesh makes and removes.

A run folder holds the sockets and the token of one mesh. It has a mark file, which its maker keeps
locked while it lives. The mark shows that a folder is pyserve's, and the lock that it is in use.
Folders without a mark are never removed, and in others only the names that pyserve writes. Folders
are opened once and used by descriptor, so that nobody can replace them meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import itertools
import logging
import os
import secrets
import stat
import tempfile
import threading
import time
from pathlib import Path

from pyserve.errors import MeshError

_LOGGER = logging.getLogger(__name__)
_MARK = ".pyserve"
_MARK_TEXT = b"Made by pyserve for one mesh, and removed with it.\n"
_OWN_FILES = (
    *("controller.sock", "controller-*.sock", "builtin.sock", "replica-*.sock", "metrics-*.sock"),
    *("token", "token.*", "ports.json"),
    *("output-*.log", "output-*.at"),
    *("mesh.sqlite3", "mesh.sqlite3-wal", "mesh.sqlite3-shm"),
)
# Each holder of values has one, with a socket in it.
_OWN_FOLDERS, _IN_OWN_FOLDERS = "pyserve-values-*", "socket"
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The sticky bit tells cleaners of $XDG_RUNTIME_DIR to leave it (XDG Base Directory 0.8).
_PRIVATE = stat.S_ISVTX | 0o700
# sun_path holds 108 bytes with the final zero (unix(7)).
_UNIX_PATH_BYTES_MAX = 107
_LONGEST_SOCKET_NAME = "replica-0123456789abcdef.sock"
_LOCK_LOOK_INTERVAL_S = 0.01  # arbitrary; the kernel closes what the dead had in less
# How many entries of a folder a start examines for leftovers. Any user may fill the temporary
# folder; this many entries take some 40 ms. Arbitrary.
_LOOKED_AT_MAX = 10_000
_UID_MAP = Path("/proc/self/uid_map")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
_FIRST_PROCESS = Path("/proc/1/status")
_OTHER = "set PYSERVE_HOME to another directory"


class PrivateFolder:
    """A directory of this user that nobody else may write to or replace, until ``close``.

    Args:
        path: where it is; links on the way are followed, but it must not be a link itself.
        make: make it if it is missing, and what is above it.

    Attributes:
        path: without links.
        descriptor: of the open directory.

    Raises:
        FileNotFoundError: it is missing, and ``make`` is false.
        OSError: it cannot be opened or made.
        MeshError: it is a link, another user's, or others may write to or replace it.
    """

    def __init__(self, path: Path, *, make: bool) -> None:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        parent = Path(os.path.realpath(path.parent, strict=True))
        self.path = parent / path.name
        above = _open_unshared(parent)
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path.name, _PRIVATE, dir_fd=above)
            self.descriptor = _open_own(path.name, above, self.path)
        finally:
            os.close(above)

    def open(self, name: str, flags: int) -> int:
        """Open a file of it; never what a link leads to.

        Raises:
            OSError: that is not possible.
        """
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=self.descriptor)

    def read(self, name: str) -> str:
        """Return the text of a file that belongs to this user.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be read.
            ValueError: it is another user's, or no text.
        """
        with os.fdopen(self.open(name, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                raise ValueError(f"{self.path / name} belongs to another user")
            return file.read()

    def write(self, name: str, text: str) -> None:
        """Put a file there for this user only, in one step: no reader sees half of it.

        Raises:
            OSError: that is not possible.
        """
        fresh = f"{name}.{os.getpid()}"
        self.remove(fresh)
        try:
            with os.fdopen(self.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as file:
                file.write(text)
            here = self.descriptor
            os.replace(fresh, name, src_dir_fd=here, dst_dir_fd=here)
        except OSError:
            self.remove(fresh)
            raise

    def remove(self, name: str) -> None:
        """Remove a file of it if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def has(self, name: str) -> bool:
        """Say whether an entry of that name is there, whatever it is."""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return False
        return True

    def is_file(self, name: str, descriptor: int) -> bool:
        """Say whether the open file still has that name."""
        try:
            found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(descriptor))

    def is_in_place(self) -> bool:
        """Say whether its path still leads to it."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self.descriptor))
        except OSError:
            return False

    def hold(self) -> None:
        """Keep systemd's cleaner away: it skips locked folders (systemd.io/TEMPORARY_DIRECTORIES).

        Systems that cannot lock directories do not have this cleaner.
        """
        with contextlib.suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class RunFolder:
    """The folder of one mesh for its sockets and its token, marked and locked until ``close``.

    Args:
        home: in which it is, unless the path were too long for sockets.
        name: of one that is found again by the next controller with what is in it; "": a new one.
        held: one that another process has made and locked: its path, and its open mark, which is
            this object's from here on.

    Attributes:
        path: where it is, for as long as this lives; short enough for the paths of sockets.
        folder: the directory as it is now.
        mark: the open mark, whose lock every process has that inherits it.

    Raises:
        OSError, MeshError: it cannot be made.
    """

    def __init__(
        self, home: PrivateFolder, name: str = "", held: tuple[Path, int] | None = None
    ) -> None:
        if held is not None:
            self.path, self.mark = held
            self._take()
            return
        path = home.path / (name or f"mesh-{secrets.token_hex(4)}")
        if len(os.fsencode(path / _LONGEST_SOCKET_NAME)) > _UNIX_PATH_BYTES_MAX:
            path = _in_temporary_folder(home.path if name else None)
        self.path = path
        self.mark = -1
        if name:
            self._make()
            return
        # New, so that nothing of anybody else gets the mark.
        path.mkdir(_PRIVATE)
        try:
            self._make()
        except BaseException:
            # Without a mark no other process would remove it.
            with contextlib.suppress(OSError):
                path.joinpath(_MARK).unlink(missing_ok=True)
                path.rmdir()
            raise

    def restore(self) -> bool:
        """Make it again at the same path if it was removed; return whether it was.

        Raises:
            OSError, MeshError: it cannot be made.
        """
        if self.folder.is_in_place() and self.folder.is_file(_MARK, self.mark):
            return False
        self._let_go()
        self._make()
        return True

    def close(self, *, remove: bool = True) -> None:
        """Remove what pyserve has written there, and the folder if nothing else is in it.

        What cannot be removed stays, and one line of the log says so.

        Args:
            remove: false: let go only, since replicas use it that go on.
        """
        try:
            if remove and self.folder.is_in_place():
                _empty(self.folder.descriptor, self.path)
        except OSError as error:
            _LOGGER.warning("%s cannot be removed: %s", self.path, error)
        finally:
            self._let_go()

    def _take(self) -> None:
        """Use what was there, unless somebody has removed it meanwhile."""
        self.folder = PrivateFolder(self.path, make=True)
        self.folder.hold()
        self.restore()

    def _make(self) -> None:
        self.folder = PrivateFolder(self.path, make=True)
        try:
            self.mark = self.folder.open(_MARK, os.O_RDWR | os.O_CREAT)
            # Only a process that checks whether it is in use may hold the lock, for a moment.
            fcntl.flock(self.mark, fcntl.LOCK_EX)
            # Last: a mark counts only with its text, so nobody removes a folder not yet locked.
            os.pwrite(self.mark, _MARK_TEXT, 0)
        except BaseException:
            self._let_go()
            raise
        self.folder.hold()

    def _let_go(self) -> None:
        self.folder.close()
        if self.mark >= 0:
            os.close(self.mark)
            self.mark = -1


def remove_unused(path: Path, patience_s: float = 0.0) -> None:
    """Remove a run folder whose mesh is gone; whatever else is there stays.

    Never fails: what cannot be removed stays as well, and one line of the log says it.

    Args:
        path: where it is.
        patience_s: how long to wait for an owner that ends.
    """
    try:
        folder = PrivateFolder(path, make=False)
    except (OSError, MeshError):  # Another's, a link, a file: nothing of ours.
        return
    try:
        mark = folder.open(_MARK, os.O_RDWR | os.O_NONBLOCK)
    except OSError:  # No mark: nothing of ours.
        folder.close()
        return
    try:
        is_ours = os.fstat(mark).st_uid == os.getuid() and _lock_within(mark, patience_s)
        if is_ours and os.pread(mark, len(_MARK_TEXT) + 1, 0) == _MARK_TEXT:
            _empty(folder.descriptor, folder.path)
    except OSError as error:
        _LOGGER.warning("%s, of a mesh that is gone, cannot be removed: %s", path, error)
    finally:
        os.close(mark)
        folder.close()


def _lock_within(mark: int, patience_s: float) -> bool:
    """Take the lock of a mark, unless its owner keeps it for longer."""
    deadline = time.monotonic() + patience_s
    news = threading.Event()  # Never set: locks of others announce nothing.
    while True:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            news.wait(_LOCK_LOOK_INTERVAL_S)
        else:
            return True


def remove_left(home: PrivateFolder) -> None:
    """Remove the run folders of meshes that are gone, in ``home`` and in the temporary folder.

    It looks at the first 10 000 entries of each, and leaves the others alone.
    """
    for place, prefix in ((home.path, "mesh-"), (Path(tempfile.gettempdir()), "pyserve-mesh-")):
        for path in _own_entries(place, prefix):
            remove_unused(path)


def _own_entries(place: Path, prefix: str) -> list[Path]:
    """Return this user's entries that begin with ``prefix``, among a folder's first entries."""
    try:
        with os.scandir(place) as entries:
            looked_at = list(itertools.islice(entries, _LOOKED_AT_MAX))
    except OSError:  # It is missing, or cannot be read.
        return []
    return [Path(each.path) for each in looked_at if each.name.startswith(prefix) and _is_own(each)]


def _is_own(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except OSError:  # It has gone meanwhile.
        return False


def _in_temporary_folder(home: Path | None) -> Path:
    """Return a new path, or the one that belongs to ``home``."""
    name = f"pyserve-mesh-{secrets.token_hex(8)}"
    if home is not None:
        # No name that ``remove_left`` looks at: what lives there may have no controller.
        name = f"pyserve-lasting-{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}"
    return Path(os.path.realpath(tempfile.gettempdir())) / name


def _empty(descriptor: int, path: Path) -> None:
    """Remove our files from an open run folder, then the folder, unless others are in it."""
    foreign = [name for name in os.listdir(descriptor) if not _remove_own(descriptor, name)]
    if foreign:
        _LOGGER.warning(
            "%s stays, because it holds what is not of pyserve: %s", path, ", ".join(foreign)
        )
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_MARK, dir_fd=descriptor)
    # By its path, which nobody else may change; a directory that is not empty stays.
    with contextlib.suppress(OSError):
        path.rmdir()


def _remove_own(descriptor: int, name: str) -> bool:
    """Remove an entry if pyserve writes such a one; return whether that was so."""
    with contextlib.suppress(FileNotFoundError):
        if fnmatch.fnmatchcase(name, _OWN_FOLDERS):
            return _remove_own_folder(descriptor, name)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _OWN_FILES):
            try:
                os.unlink(name, dir_fd=descriptor)
            except IsADirectoryError:
                return False
            return True
    return name == _MARK


def _remove_own_folder(above: int, name: str) -> bool:
    try:
        descriptor = os.open(name, _OPEN_FOLDER, dir_fd=above)
    except NotADirectoryError:
        return False
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_IN_OWN_FOLDERS, dir_fd=descriptor)
        os.rmdir(name, dir_fd=above)
    except OSError:  # Something else is in it.
        return False
    finally:
        os.close(descriptor)
    return True


def _open_unshared(parent: Path) -> int:
    """Open a directory in which, and above which, nobody else may put things in place of ours.

    Groups with write access are trusted: an administrator has put this user into them. The owner
    of a directory may replace its entries whatever its mode, even with a sticky bit. Volumes of
    pods have no sticky bit, and mostly no other user who could abuse that.
    """
    for directory in (parent, *parent.parents):
        found = directory.stat()
        if not _is_trusted(found.st_uid):
            raise MeshError(
                f"{directory} belongs to user {found.st_uid}, who may replace what is in it, so "
                f"the files of a mesh are not safe below it; {_OTHER}"
            )
        is_open = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        if is_open and not _is_alone():
            raise MeshError(
                f"everybody may replace what is in {directory}, so the files of a mesh are not "
                f"safe below it; chmod o-w or +t {directory}, or {_OTHER}"
            )
    return os.open(parent, _OPEN_FOLDER)


def _is_alone() -> bool:
    """Return whether all processes of this container are, and stay, this user's."""
    try:
        return keeps_one_user(_FIRST_PROCESS.read_text(), os.getuid())
    except (OSError, ValueError):  # It cannot be known.
        return False


def keeps_one_user(status: str, uid: int) -> bool:
    """Say whether all processes that descend from one are this user's, who is not root.

    That is so where it has no capabilities, and ``no_new_privs`` keeps programs from giving any
    (proc_pid_status(5), PR_SET_NO_NEW_PRIVS(2const)): Kubernetes sets that for
    ``allowPrivilegeEscalation: false``. A container's other processes come from its first one, or
    from whoever may do anything in it.

    Args:
        status: what ``/proc/PID/status`` has of that process.
        uid: of this user.
    """
    found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    users = {int(each) for each in found.get("Uid", "").split()}
    return (
        users == {uid} != {0}
        and found.get("NoNewPrivs", "").strip() == "1"
        and int(found.get("CapPrm", "").strip() or "-1", 16) == 0
    )


def _is_trusted(owner: int) -> bool:
    """Say whether the owner of a directory above ours is this user or root."""
    if owner in (os.getuid(), 0):
        return True
    try:
        overflow = int(_OVERFLOW_UID.read_text())
        return owner == overflow and hides_owners(_UID_MAP.read_text(), overflow)
    except (OSError, ValueError):  # No such namespaces here, so a number is a user's.
        return False


def hides_owners(uid_map: str, overflow: int) -> bool:
    """Say whether a user namespace shows root of the machine with the number ``overflow``.

    It shows all who have no number in it so, and there they cannot be told apart; without it, no
    folder of a container that has one user would do. Where a user in it has that number, it is
    taken for that user's (user_namespaces(7)).

    Args:
        uid_map: of the namespace: lines of first number inside, first outside, and count.
        overflow: what ``/proc/sys/kernel/overflowuid`` has.
    """
    ranges = [[int(number) for number in line.split()] for line in uid_map.splitlines()]
    return bool(ranges) and not any(
        first <= overflow < first + count for first, _outside, count in ranges
    )


def _open_own(name: str, above: int, path: Path) -> int:
    """Open a directory of this user that nobody else may write to."""
    try:
        descriptor = os.open(name, _OPEN_FOLDER, dir_fd=above)
    except OSError as error:
        # Which of the two it is depends on the system.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
            raise MeshError(
                f"{path} is a symbolic link, which whoever made it may turn elsewhere; remove it, "
                f"or set PYSERVE_HOME to the directory that is meant"
            ) from None
        raise
    found = os.fstat(descriptor)
    problem = ""
    if found.st_uid != os.getuid():
        problem = f"{path} belongs to user {found.st_uid}; set PYSERVE_HOME to one of your own"
    elif stat.S_IMODE(found.st_mode) & 0o022:
        problem = f"others may write to {path}; chmod 700 {path}"
    if problem:
        os.close(descriptor)
        raise MeshError(problem)
    return descriptor
