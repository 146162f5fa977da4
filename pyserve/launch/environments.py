"""What replicas are given besides what the driver has: packages of their own, and archives.

Each is made once, in a folder named by a digest of what it was made of, and stays for the
replicas and meshes to come. It is made beside its place and then renamed, so that what is there
is whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import site
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

# Of an installer's output; its last lines say what was wrong.
_SHOWN_LINES = 8


class Environments:
    """Makes them on threads, in a folder of this user.

    Args:
        folder: It is made when something has to go there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._making: dict[str, asyncio.Future[Path]] = {}
        self._installers: set[subprocess.Popen[str]] = set()

    async def interpreter(self, requirements: Sequence[str]) -> str:
        """Return an interpreter that has these packages, before those of this one.

        Raises:
            OSError: They cannot be installed; the text has the installer's last lines.
        """
        if not requirements:
            return sys.executable
        lines = "\n".join(sorted(requirements))
        digest = hashlib.sha256(f"{sys.executable}\0{sys.version}\0{lines}".encode()).hexdigest()
        place = await self._made(f"packages-{digest}", lambda part: self._install(part, lines))
        return str(place / "bin" / "python")

    async def directory(self, path: str) -> str:
        """Return the folder at a path as it is, and of a zip archive what is in it.

        Raises:
            OSError: It cannot be read.
        """
        digest = await asyncio.to_thread(_digest_of_archive, path) if path else ""
        if not digest:
            return path
        return str(await self._made(f"archive-{digest}", lambda part: _unpack(path, part)))

    def close(self) -> None:
        """Stop what is under way; whoever waits for it gets an error."""
        for installer in self._installers.copy():
            installer.kill()

    async def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return what has been made under a name; replicas that want the same wait together."""
        making = self._making.get(name)
        if making is None:
            making = asyncio.ensure_future(asyncio.to_thread(_make, self._folder / name, make))
            self._making[name] = making
            making.add_done_callback(lambda _: self._making.pop(name))
        return await asyncio.shield(making)

    def _install(self, place: Path, requirements: str) -> None:
        beside = str(Path(sys.executable).parent)
        uv = shutil.which("uv") or shutil.which("uv", path=beside)
        if uv is None:
            raise OSError(
                "packages of a runtime_env are installed by uv, which is not on PATH here; install "
                "it (pip install uv), or install the packages where the mesh runs"
            )
        self._run(uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(place))
        (packages,) = place.glob("lib/python*/site-packages")
        # What this interpreter has comes behind, with its own .pth files.
        lines = (f"import site; site.addsitedir({each!r})\n" for each in site.getsitepackages())
        (packages / "pyserve-of-the-launcher.pth").write_text("".join(lines))
        listed = place / "requirements.txt"
        listed.write_text(requirements)
        python = str(place / "bin" / "python")
        self._run(uv, "pip", "install", "--quiet", "--python", python, "-r", str(listed))

    def _run(self, *command: str) -> None:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            self._installers.add(process)
            try:
                output, _ = process.communicate()
            finally:
                self._installers.discard(process)
        if process.returncode:
            last = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
            raise OSError(f"`uv {command[1]}` for a runtime_env failed: {last}")


def _make(place: Path, make: Callable[[Path], None]) -> Path:
    if place.exists():
        return place
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f"{place.name}.", dir=place.parent, ignore_cleanup_errors=True
    ) as folder:
        part = Path(folder) / "part"
        make(part)
        try:
            part.rename(place)
        except OSError:
            if not place.exists():  # Else another mesh was faster.
                raise
    return place


def _digest_of_archive(path: str) -> str:
    """Return the digest of a zip archive, "" for a folder."""
    if not path.endswith(".zip") or Path(path).is_dir():
        return ""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(path: str, place: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(place)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        # RuntimeError: it is encrypted.
        raise OSError(f"the working_dir {path} cannot be unpacked: {error}") from error
