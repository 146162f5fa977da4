"""Records in a SQLite file: one table a kind, a key and a value each, one transaction a change.

The file is in WAL mode without a sync to the disk for each change: the death of a process loses
nothing, a power loss may lose the last seconds. If a file has no records, for that or any other
reason, it is not taken for that of a new mesh if there is a copy of it.

The file is not synced to the disk at each change; the copy is, as a whole, so that a power loss
leaves one of the two intact. The copy also shows that a mesh has had its state here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyserve.control.store.records import Changes, Key, Record, Records, Table, decode, encode
from pyserve.errors import MeshError

# "pysv": tells our files from other SQLite files.
_APPLICATION_ID = 0x70797376
# How long to wait for other programs that open the file. The controller's loop is blocked
# meanwhile, and with it everything that the controller does.
_LOCKED_TIMEOUT_S = 0.1


def _create_tables(connection: sqlite3.Connection) -> None:
    # Not the names of `Table`: a step must not change after it was released.
    for name in (
        *("mesh", "applications", "deployments", "versions", "specs", "formers", "replicas"),
    ):
        connection.execute(f"CREATE TABLE {name} (key TEXT PRIMARY KEY NOT NULL, value BLOB)")


# Step n turns a file of schema n into one of schema n + 1; never change a released step.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create_tables,)


class SqliteStore:
    """One file, which is made if it is missing.

    Args:
        path: where; its directory is private to this user.
        migrations: the steps that lead to the schema of today.

    Attributes:
        writes: how many changes have been written.

    Raises:
        MeshError: it cannot be opened, is not a file of ours, or a newer release has written it.
    """

    def __init__(
        self,
        path: Path,
        migrations: Sequence[Callable[[sqlite3.Connection], None]] = MIGRATIONS,
    ) -> None:
        self.writes = 0
        self._path = path
        self._migrations = migrations
        self._connection: sqlite3.Connection | None = None
        self._make()

    def _make(self) -> None:
        try:
            # By us, so that it is for this user only; SQLite's other files get the same mode.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise MeshError(
                f"the state of the mesh cannot be opened: {self._path}: {error.strerror}; set "
                "PYSERVE_HOME to a directory that you may write to"
            ) from error
        self._file = os.fstat(file)
        os.close(file)
        try:
            with self._telling("opened"):
                # Transactions begin and end where this module says so.
                self._connection = sqlite3.connect(
                    self._path, isolation_level=None, timeout=_LOCKED_TIMEOUT_S
                )
                self._set_up()
        except BaseException:
            self.close()
            raise

    def load(self) -> Records:
        """Read everything; see ``Store.load``."""
        records: dict[Key, Record] = {}
        with self._telling("read"):
            for table in Table:
                # Of an enumeration, not of anybody's input.
                rows = self._open().execute(f"SELECT key, value FROM {table.value}")  # noqa: S608
                for key, value in rows:
                    records[table, key] = self._decoded(table, key, value)
        if not records:
            refuse_lost(self._path)
        return records

    def is_lost(self) -> bool:
        """Say whether the file is gone; see ``Store.is_lost``. The next write makes another."""
        try:
            return not os.path.samestat(self._path.lstat(), self._file)
        except OSError:
            return True

    def write(self, changes: Changes) -> None:
        """Write one transaction; see ``Store.write``."""
        if self.is_lost():
            self.close()
        if self._connection is None:
            self._make()
        with self._telling("written"), self._transaction() as connection:
            for table, key in changes.removed:
                connection.execute(f"DELETE FROM {table.value} WHERE key = ?", (key,))  # noqa: S608
            for (table, key), record in changes.put.items():
                connection.execute(
                    f"INSERT INTO {table.value} VALUES (?, ?) "  # noqa: S608
                    "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (key, encode(record)),
                )
        self.writes += 1

    def close(self) -> None:
        """Close the file; see ``Store.close``. A later write opens it again."""
        if self._connection is not None:
            # All writes are committed, even if SQLite fails to clean up.
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _set_up(self) -> None:
        migrations = self._migrations
        connection = self._open()
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application_id != _APPLICATION_ID and tables:
            raise MeshError(
                f"{self._path} is a database of another program; move it away, or set PYSERVE_HOME "
                "to another directory"
            )
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(migrations):
            raise MeshError(
                f"{self._path} has the state of a mesh in schema {version}, and this release of "
                f"pyserve knows schemas up to {len(migrations)}; start the newer release that "
                "wrote it, or move the file away and deploy again"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if version == len(migrations) and application_id == _APPLICATION_ID:
            return
        with self._transaction():
            for migrate in migrations[version:]:
                migrate(connection)
            # Pragmas take no parameters.
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(migrations)}")

    def _decoded(self, table: Table, key: str, value: bytes) -> Record:
        try:
            return decode(table, value)
        except ValueError as error:
            raise MeshError(
                f"the state of the mesh in {self._path} is spoilt at {key!r}: {error}; "
                f"{damage_advice(self._path)}"
            ) from error

    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None, "it is used before its close"
        return self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # A full disk ends a transaction by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Turn SQLite's errors into ``MeshError`` with advice for the operator."""
        try:
            yield
        except sqlite3.Error as error:
            # The lower byte is the kind, the others say more (sqlite.org/rescode.html).
            kind = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            other = "look at the file, or set PYSERVE_HOME to another directory"
            advice = damage_advice(self._path) if kind in _SPOILT else _ADVICE.get(kind, other)
            raise MeshError(
                f"the state of the mesh cannot be {what} ({self._path}): {error}; {advice}"
            ) from error


_SPOILT = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_ADVICE = {
    sqlite3.SQLITE_FULL: "free some space on its disk",
    sqlite3.SQLITE_BUSY: "end the process that has the file locked",
    sqlite3.SQLITE_LOCKED: "end the process that has the file locked",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for this user",
    sqlite3.SQLITE_CANTOPEN: "make the file and its directory writable for this user",
    sqlite3.SQLITE_IOERR: "look at its disk and its directory, which must not be on a network",
    sqlite3.SQLITE_TOOBIG: "an application's code and arguments are too large to be kept; pass "
    "paths of large files instead of their contents",
}


_LOGGER = logging.getLogger(__name__)
_NEW = ".new"


def copy_of(path: Path) -> Path:
    """Return where the copy of a state's file is."""
    return path.with_name(f"{path.name}.copy")


def damage_advice(path: Path) -> str:
    """Return advice about a state that is damaged or gone."""
    copy = copy_of(path)
    if not copy.exists():
        return "move the file away and deploy again"
    # SQLite would apply the rest of the former log to the copy.
    return (
        f"to go on with what was kept last, `rm -f {path}-* && cp {copy} {path}` and start again; "
        f"to begin anew, move both files away and deploy again"
    )


def refuse_lost(path: Path) -> None:
    """Refuse an empty state where a mesh has had one.

    Args:
        path: of a state that is missing, or holds nothing.

    Raises:
        MeshError: there is a copy of it; the text says what to do.
    """
    if copy_of(path).exists():
        raise MeshError(
            f"the state of the mesh is missing or empty ({path}), and was not before; "
            f"{damage_advice(path)}"
        )


class Copies:
    """Keeps the copy of a state's file.

    Args:
        path: the file.
        writes: returns how many changes have been written to it.
    """

    def __init__(self, path: Path, writes: Callable[[], int]) -> None:
        self._path = path
        self._writes = writes
        self._copied_writes = -1
        self._problem = ""

    async def keep(self, period_s: float) -> None:
        """Copy what has changed, from time to time.

        Args:
            period_s: seconds from one copy to the next.
        """
        while True:
            await asyncio.sleep(period_s)
            await asyncio.to_thread(self.copy)

    def copy(self) -> None:
        """Copy the state if it has been written since; a failure is logged, and keeps the former.

        It blocks for as long as the disk takes.
        """
        writes = self._writes()
        if writes in (0, self._copied_writes):
            return
        try:
            _copy(self._path)
        except (sqlite3.Error, OSError) as error:
            if str(error) != self._problem:
                _LOGGER.warning("the state of the mesh cannot be copied: %s", error)
            self._problem = str(error)
        else:
            self._copied_writes, self._problem = writes, ""


def _copy(path: Path) -> None:
    """Put a copy beside a database, in one step and forced to the disk."""
    new = path.with_name(path.name + _NEW)
    new.unlink(missing_ok=True)
    # By us, so that it is for this user only.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(new, flags, 0o600)
    try:
        # Never a file that was removed meanwhile.
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as source:
            source.execute("VACUUM INTO ?", (str(new),))
        os.fsync(file)
        new.replace(copy_of(path))
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        os.close(file)
        new.unlink(missing_ok=True)
