"""Two releases side by side: this tree, and the wheel of an earlier commit in an environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.mesh.start.processes import Command

ROOT: Final = Path(__file__).resolve().parents[3]
# The first one whose state, control protocol and wire the contract of docs/concepts/versions.md
# holds for. Where a release is out, the last one takes its place.
EARLIER: Final = "4628eae57e1224b79d8463e15f8ffc600e94ef4b"
# By commit; `make versions` builds a wheel there where the native half has changed since.
CACHE: Final = ROOT / "target" / "versions" / EARLIER
_NATIVE: Final = "router_rs"
_BUILD_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Release:
    """One release, as its commands are run.

    Attributes:
        name: For people.
        python: Its interpreter.
        path: What goes before everything else in ``PYTHONPATH``; "": nothing.
    """

    name: str
    python: str
    path: str

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> Path:
        """Where its modules are."""
        return Path(self.path) if self.path else _site_packages(Path(self.python).parent.parent)

    def environment(self, base: dict[str, str], code: Path) -> dict[str, str]:
        """Return the environment of its processes, which find modules in ``code``."""
        path = os.pathsep.join(filter(None, (self.path, str(code))))
        return {**base, "PYTHONPATH": path, "RELEASE": self.name}

    @contextmanager
    def running(
        self, base: dict[str, str], code: Path, *arguments: str, module: str = "pyserve"
    ) -> Iterator[Command]:
        """Run a command of it until the end of the context, which is SIGTERM if need be."""
        log = code / f"{self.name}-{os.urandom(4).hex()}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.python, "-m", module, *arguments],
                cwd=code,
                env=self.environment(base, code),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        running = Command(process, log)
        try:
            yield running
            if process.poll() is None:
                running.end()
        except BaseException as error:
            error.add_note(f"{self} {' '.join(arguments)} wrote:\n{running.output()[-5000:]}")
            raise
        finally:
            process.kill()
            process.wait()


TREE: Final = Release("tree", sys.executable, str(ROOT))


def earlier_release() -> Release:
    """Return the earlier one; skips the test, with the reason, where it cannot be had."""
    environment = CACHE / f"environment-{sys.version_info.major}.{sys.version_info.minor}"
    if not environment.is_dir():
        _install(_wheel(), environment)
    return Release("earlier", str(environment / "bin" / "python"), "")


def _wheel() -> Path:
    for found in sorted(CACHE.glob("*.whl")):
        return found
    if _git("cat-file", "-e", f"{EARLIER}^{{commit}}").returncode:
        pytest.skip(f"commit {EARLIER[:8]} is not in this clone; fetch the history for this test")
    if _git("diff", "--quiet", EARLIER, "--", _NATIVE).returncode:
        pytest.skip(f"the native half differs from {EARLIER[:8]}'s; `make versions` builds that")
    return _packed()


def _packed() -> Path:
    """Make the wheel of the earlier Python sources and the native half of this tree."""
    CACHE.mkdir(parents=True, exist_ok=True)
    sources = CACHE / f"sources-{os.getpid()}.zip"
    try:
        done = _git("archive", "--format=zip", f"--output={sources}", EARLIER, "pyserve")
        assert not done.returncode, done.stderr
        manifest = tomllib.loads(_git("show", f"{EARLIER}:Cargo.toml").stdout)
        version = manifest["workspace"]["package"]["version"]
        facts = f"pyserve_mesh-{version}.dist-info"
        with zipfile.ZipFile(sources, "a") as archive:
            for native in (ROOT / "pyserve").glob("_router.*.so"):
                archive.write(native, f"pyserve/{native.name}")
            metadata = f"Metadata-Version: 2.1\nName: pyserve-mesh\nVersion: {version}\n"
            archive.writestr(f"{facts}/METADATA", metadata)
        wheel = CACHE / f"pyserve_mesh-{version}-py3-none-any.whl"
        sources.replace(wheel)  # Whole, whoever else makes it at the same time.
        return wheel
    finally:
        sources.unlink(missing_ok=True)


def _install(wheel: Path, environment: Path) -> None:
    """Make an environment with the wheel, and behind it the packages of this one."""
    fresh = environment.with_name(f"{environment.name}-{os.getpid()}")
    venv.create(fresh, with_pip=False, symlinks=True)
    place = _site_packages(fresh)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    (place / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    try:
        # Environments find themselves by where they are: nothing in it names the folder.
        fresh.rename(environment)
    except OSError:
        shutil.rmtree(fresh)  # Another process was first.


def _site_packages(environment: Path) -> Path:
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / python / "site-packages"


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
    )
