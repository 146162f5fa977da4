"""Symbols leave a wheel, and nothing else does."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.release.strip_wheel import main
from tests.support.wheels import make_wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="objcopy is for ELF"),
    pytest.mark.skipif(
        not shutil.which("cc") or not shutil.which("objcopy"), reason="needs cc and binutils"
    ),
]
SOURCE = "static int hidden(int n) { return n + 1; }\nint answer(int n) { return hidden(n) * 2; }\n"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with a native library that has symbols."""
    (tmp_path / "answer.c").write_text(SOURCE)
    library = tmp_path / "_answer.abi3.so"
    command = ["cc", "-g", "-O0", "-shared", "-fPIC", "-o", str(library), "answer.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    plain = make_wheel(tmp_path, "native", "1.0", "text = 'kept'\n")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(plain) as archive:
        archive.extractall(unpacked)
    shutil.copy(library, unpacked / library.name)
    _wheel("pack", str(unpacked), "--dest-dir", str(tmp_path))
    return plain


def test_a_wheel_keeps_its_files_and_loses_its_symbols(wheel: Path, tmp_path: Path):
    out, symbols = tmp_path / "dist", tmp_path / "symbols"

    assert 0 == main([str(wheel), "--out", str(out), "--symbols", str(symbols)])

    _wheel("unpack", str(out / wheel.name), "--dest", str(tmp_path / "again"))  # checks RECORD
    stripped = tmp_path / "again" / "native-1.0" / "_answer.abi3.so"
    assert _names(wheel) == _names(out / wheel.name)
    assert "hidden" not in _read("readelf", "--symbols", "--wide", stripped)
    assert "_answer.abi3.so.debug" in _read("readelf", "--string-dump=.gnu_debuglink", stripped)
    assert 84 == ctypes.CDLL(str(stripped)).answer(41)


def test_the_symbols_have_functions_and_lines(wheel: Path, tmp_path: Path):
    main([str(wheel), "--out", str(tmp_path / "dist"), "--symbols", str(tmp_path / "symbols")])

    (file,) = (tmp_path / "symbols").rglob("*.debug")
    assert "hidden" in _read("readelf", "--symbols", "--wide", file)
    assert "answer.c" in _read("readelf", "--debug-dump=decodedline", file)


def test_a_wheel_that_is_none_is_told(tmp_path: Path):
    broken = tmp_path / "broken-1.0-py3-none-any.whl"
    broken.write_text("no archive")

    with pytest.raises(subprocess.CalledProcessError):
        main([str(broken), "--out", str(tmp_path / "x"), "--symbols", str(tmp_path / "y")])


def _wheel(*arguments: str) -> None:
    command = [sys.executable, "-m", "wheel", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _read(*command: str | Path) -> str:
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    return done.stdout.decode(errors="replace")  # a checksum follows the name of the file
