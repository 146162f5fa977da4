"""The wheel of dist has what it promises, and nothing else. ``make wheel`` makes it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
LIBRARY = "pyserve/_router.abi3.so"
# What release.yml, `make wheel` and `make wheel-aarch64` build for is manylinux 2.28.
GLIBC_MINOR_MAX = 28
# What git has below pyserve/, as `git ls-files` and as a wheel name it.
_LISTED = subprocess.run(
    ["git", "ls-files", "-z", "pyserve"], cwd=ROOT, check=False, capture_output=True, text=True
)
SOURCES = {name for name in _LISTED.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def wheel() -> Path:
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    if not wheels:
        pytest.skip("there is no wheel in dist; make wheel makes it")
    if any((ROOT / name).stat().st_mtime > wheels[-1].stat().st_mtime for name in SOURCES):
        pytest.skip("the wheel in dist is older than the tree; make wheel makes another")
    (only,) = wheels
    return only


@pytest.fixture(scope="module")
def archive(wheel: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel) as opened:
        yield opened


@pytest.fixture(scope="module")
def facts(archive: zipfile.ZipFile) -> str:
    """Return the folder of the wheel's metadata."""
    (folder,) = {name.partition("/")[0] for name in archive.namelist()} - {"pyserve"}
    return folder


@pytest.fixture
def metadata(archive: zipfile.ZipFile, facts: str) -> Message:
    return message_from_bytes(archive.read(f"{facts}/METADATA"))


def test_its_name_says_the_version_and_every_python_from_the_oldest_on(wheel: Path):
    name, version, _, tags = parse_wheel_filename(wheel.name)

    assert PROJECT["name"] == name
    assert CARGO["workspace"]["package"]["version"] == str(version)
    assert {("cp311", "abi3")} == {(tag.interpreter, tag.abi) for tag in tags}


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is a promise about Linux")
def test_it_is_for_every_linux_whose_c_library_is_new_enough(wheel: Path):
    """As those of a release: Debian 11 and Ubuntu 20.04 have 2.31, and what is newer has more."""
    platforms = {tag.platform for tag in parse_wheel_filename(wheel.name)[3]}
    found = [re.match(r"manylinux_2_(\d+)_", each) for each in platforms - {"manylinux2014_x86_64"}]
    assert all(each and int(each[1]) <= GLIBC_MINOR_MAX for each in found), platforms


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("readelf"), reason="needs binutils and ELF"
)
def test_its_library_asks_for_no_newer_c_library(archive: zipfile.ZipFile, tmp_path: Path):
    archive.extract(LIBRARY, tmp_path)
    asked = re.findall(r"\bGLIBC_2\.(\d+)", _readelf("--version-info", tmp_path / LIBRARY))
    assert max(map(int, asked)) <= GLIBC_MINOR_MAX


def test_it_has_each_file_of_the_package_and_nothing_else(archive: zipfile.ZipFile):
    """No tests and no caches; but stubs, the marker of types, generated code and the page."""
    names = {name for name in archive.namelist() if name.startswith("pyserve/")}

    assert SOURCES | {LIBRARY} == names
    assert {"pyserve/py.typed", "pyserve/_router.pyi", "pyserve/admin/page/index.html"} < names
    assert "pyserve/wire/v1/control_pb2.pyi" in names


def test_it_asks_for_what_the_project_asks_for(metadata: Message):
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    always = {each.name for each in asked if "extra ==" not in str(each.marker)}

    assert {Requirement(line).name for line in PROJECT["dependencies"]} == always
    assert set(PROJECT["optional-dependencies"]) == set(metadata.get_all("Provides-Extra", []))
    assert PROJECT["requires-python"] == metadata["Requires-Python"]
    assert PROJECT["license"] == metadata["License-Expression"]


def test_it_has_the_command_and_the_licence(archive: zipfile.ZipFile, facts: str):
    assert b"pyserve=pyserve.cli:main" in archive.read(f"{facts}/entry_points.txt")
    assert (ROOT / "LICENSE").read_bytes() == archive.read(f"{facts}/licenses/LICENSE")


def test_its_bill_of_materials_names_the_crates_of_the_lock(archive: zipfile.ZipFile, facts: str):
    (file,) = [name for name in archive.namelist() if name.startswith(f"{facts}/sboms/")]
    bill = json.loads(archive.read(file))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    locked = {(package["name"], package["version"]) for package in lock}
    listed = {(each["name"], each["version"]) for each in bill["components"]}

    assert "CycloneDX" == bill["bomFormat"]
    assert {"h2", "pyo3", "rustls", "tokio"} <= {name for name, _ in listed}
    assert set() == listed - locked


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("readelf"), reason="needs binutils and ELF"
)
def test_its_library_has_no_symbols_and_names_the_file_that_has(
    archive: zipfile.ZipFile, wheel: Path, tmp_path: Path
):
    archive.extract(LIBRARY, tmp_path)
    symbols = ROOT / "target" / "symbols" / wheel.stem / f"{Path(LIBRARY).name}.debug"

    sections = _sections(tmp_path / LIBRARY)
    assert set() == {".symtab", ".debug_line"} & sections
    assert ".gnu_debuglink" in sections
    assert {".symtab", ".debug_line"} <= _sections(symbols)
    # The file is found by a debugger whose build id is that of the library.
    assert _build_id(tmp_path / LIBRARY) == _build_id(symbols)


def _sections(file: Path) -> set[str]:
    return set(re.findall(r"\] (\.[\w.]+)", _readelf("--section-headers", file)))


def _build_id(file: Path) -> str:
    (found,) = re.findall(r"Build ID: (\w+)", _readelf("--notes", file))
    return str(found)


def _readelf(option: str, file: Path) -> str:
    command = ["readelf", "--wide", option, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout
