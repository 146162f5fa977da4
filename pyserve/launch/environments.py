"""Makes what replicas need besides the driver's environment: their own packages, and archives.

Each is made once, in a folder named by a digest of its inputs, and stays for later replicas and
meshes. It is made under another name and then renamed, so that a folder is always complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import lzma
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

# Lines of an installer's output in an error; the last ones say what was wrong.
_SHOWN_LINES = 8
# Names of folders whose content is not complete, and the age from which one counts as abandoned.
_HALF_MADE = re.compile(r"(packages|archive)-[0-9a-f]{64}\..+")
_LEFT_S = 24 * 3600.0
_ARCHIVE = re.compile(r"archive-[0-9a-f]{64}")
# Arbitrary: a replica that has died is replaced within seconds.
_KEPT_S = 60.0
# What zipfile raises for data that is not a zip archive or uses unsupported features; RuntimeError:
# for encrypted archives.
_UNREADABLE = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
)

# The limit on an unpacked archive: code compresses to a fifth, and hardly anything except zeros to
# a twentieth.
_UNPACKED_BYTES_MIN = 64 << 20
_UNPACKED_TIMES_MAX = 20

Run: TypeAlias = "Callable[..., None]"
"""Runs a command of an installer to its end."""


class Environments:
    """Makes them on threads, in a folder of this user.

    Args:
        folder: It is made when something has to go there.
        kept_s: Seconds for which an archive without users stays unpacked, for a replica that is
            restarted.
    """

    def __init__(self, folder: Path, kept_s: float = _KEPT_S) -> None:
        self._folder = folder
        self._kept_s = kept_s
        self._making: dict[str, _Making] = {}
        self._has_swept = False
        # The archive of each user.
        self._users: dict[str, str] = {}
        self._looking: asyncio.TimerHandle | None = None

    async def interpreter(self, requirements: Sequence[str]) -> str:
        """Return an interpreter that has these packages, before those of this one.

        Cancelled, it ends the installation, unless others wait for it too.

        Raises:
            OSError: They cannot be installed; the text has the installer's last lines.
        """
        if not requirements:
            return sys.executable
        digest = await asyncio.to_thread(_digest_of_requirements, requirements)
        place = await self._made(
            f"packages-{digest}", lambda part, run: _install(part, requirements, run)
        )
        return str(place / "bin" / "python")

    async def directory(self, path: str, user: str) -> str:
        """Return the folder at a path, or for a zip archive a folder with its content.

        Args:
            path: Of the folder or the archive; "": there is none.
            user: Whose it is until ``release``, and as long as a process has its working
                directory there.

        Raises:
            OSError: It cannot be read.
        """
        digest = await asyncio.to_thread(_digest_of_archive, path) if path else ""
        if not digest:
            return path
        name = self._users[user] = f"archive-{digest}"
        return str(await self._made(name, lambda part, _: _unpack(path, part)))

    def release(self, user: str) -> None:
        """End a user's claim to its folder; archives without users are removed after a while."""
        if self._users.pop(user, "") and self._looking is None:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(self._kept_s, self._remove_unused)

    def _remove_unused(self) -> None:
        """Remove the archives without users, including those of an earlier mesh."""
        self._looking = None
        with contextlib.suppress(OSError):  # There are none.
            used = {*self._users.values(), *self._making, *_folders_of_processes()}
            for place in self._folder.iterdir():
                if _ARCHIVE.fullmatch(place.name) and place.name not in used:
                    # In one step: the next replica that needs it unpacks it again.
                    aside = place.with_name(f"{place.name}.{os.urandom(4).hex()}")
                    place.rename(aside)
                    threading.Thread(target=shutil.rmtree, args=(aside, True)).start()

    def stop(self) -> None:
        """Stop the installations under way; tasks that wait for them get an error."""
        for making in self._making.values():
            making.stop()

    def close(self) -> None:
        """Remove the archives that no process works in. Nothing may be asked for after this."""
        if self._looking is not None:
            self._looking.cancel()
        self._users.clear()
        self._remove_unused()

    async def _made(self, name: str, make: Callable[[Path, Run], None]) -> Path:
        """Return what has been made under a name; replicas that want the same wait together."""
        making = self._making.get(name)
        if making is None:
            making = self._making[name] = _Making()
            work = asyncio.to_thread(self._make, self._folder / name, make, making.run)
            making.result = asyncio.ensure_future(work)
            making.result.add_done_callback(lambda _: self._making.pop(name))
        making.waiting += 1
        try:
            return await asyncio.shield(making.result)
        finally:
            making.waiting -= 1
            if not making.waiting:
                making.stop()

    def _make(self, place: Path, make: Callable[[Path, Run], None], run: Run) -> Path:
        if place.exists():
            return place
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._has_swept:
            self._has_swept = True
            _sweep(self._folder)
        with tempfile.TemporaryDirectory(
            prefix=f"{place.name}.", dir=self._folder, ignore_cleanup_errors=True
        ) as folder:
            part = Path(folder) / "part"
            make(part, run)
            try:
                part.rename(place)
            except OSError:
                if not place.exists():  # Else another mesh was faster.
                    raise
        return place


class _Making:
    """One thing that is being made, and the installer that runs for it.

    Attributes:
        result: Where it will be.
        waiting: How many wait for it.
    """

    result: asyncio.Future[Path]

    def __init__(self) -> None:
        self.waiting = 0
        self._installer: subprocess.Popen[str] | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Kill the installer with what it builds by, and start no other."""
        with self._lock:
            self._is_stopped = True
            installer = self._installer
            if installer is not None and installer.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(installer.pid, signal.SIGKILL)

    def run(self, *command: str) -> None:
        """Run an installer to its end; on the thread of the work.

        Raises:
            OSError: It fails, or is stopped.
        """
        with self._lock:
            if self._is_stopped:
                raise OSError("the installation for a runtime_env was stopped")
            self._installer = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        with self._installer as process:
            output, _ = process.communicate()
        if process.returncode:
            last = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
            raise OSError(f"`uv {command[1]}` for a runtime_env failed: {last}")


def _sweep(folder: Path) -> None:
    """Remove incomplete folders that killed meshes have left."""
    for left in folder.iterdir():
        if _HALF_MADE.fullmatch(left.name) and time.time() - left.stat().st_mtime > _LEFT_S:
            shutil.rmtree(left, ignore_errors=True)


def _install(place: Path, requirements: Sequence[str], run: Run) -> None:
    beside = str(Path(sys.executable).parent)
    uv = shutil.which("uv") or shutil.which("uv", path=beside)
    if uv is None:
        raise OSError(
            "packages of a runtime_env are installed by uv, which is not on PATH here; install "
            "it (pip install uv), or install the packages where the mesh runs"
        )
    run(uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(place))
    (packages,) = place.glob("lib/python*/site-packages")
    # What this interpreter has comes behind, with its own .pth files.
    lines = (f"import site; site.addsitedir({each!r})\n" for each in site.getsitepackages())
    (packages / "pyserve-of-the-launcher.pth").write_text("".join(lines))
    listed = place / "requirements.txt"
    listed.write_text("\n".join(requirements))
    python = str(place / "bin" / "python")
    run(uv, "pip", "install", "--quiet", "--python", python, "-r", str(listed))


def _digest_of_requirements(requirements: Sequence[str]) -> str:
    """Return the digest of what is written, of this interpreter, and of files that are named."""
    digest = hashlib.sha256(f"{sys.executable}\0{sys.version}".encode())
    for requirement in requirements:
        digest.update(f"\0{requirement}".encode())
        place = Path(requirement)
        if place.is_absolute() and place.exists():
            for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
                found = file.stat()
                digest.update(f"\0{file}\0{found.st_size}\0{found.st_mtime_ns}".encode())
    return digest.hexdigest()


def _digest_of_archive(path: str) -> str:
    """Return the digest of a zip archive, "" for a folder."""
    if not path.lower().endswith(".zip") or Path(path).is_dir():
        return ""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _folders_of_processes() -> set[str]:
    """Return the names of the folders in or below which this user's processes work."""
    found: set[str] = set()
    for each in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # It has ended, or is another user's.
            found.update(each.readlink().parts)
    return found


def _unpack(path: str, place: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            # zipfile writes no more of a member than the archive says.
            size = sum(each.file_size for each in archive.infolist())
            size_max = _UNPACKED_BYTES_MIN + _UNPACKED_TIMES_MAX * Path(path).stat().st_size
            if size > size_max:
                raise OSError(
                    f"the working_dir {path} would be {size} bytes, of which an archive of its "
                    f"size may become {size_max}; unpack it, and name the folder"
                )
            archive.extractall(place)
    except _UNREADABLE as error:
        raise OSError(f"the working_dir {path} cannot be unpacked: {error}") from error
