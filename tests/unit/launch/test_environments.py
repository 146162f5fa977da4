"""What replicas are given besides what the driver has."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pyserve.launch import Environments, environments
from tests.support.waiting import eventually
from tests.support.wheels import make_wheel

needs_uv = pytest.mark.skipif(
    not (shutil.which("uv") or (Path(sys.executable).parent / "uv").exists()),
    reason="uv is not installed",
)


def archive(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as written:
        for name, text in files.items():
            written.writestr(f"{name}.py", text)
    return path


@pytest.mark.parametrize("members", [1, 40])
async def test_an_archive_that_becomes_too_much_is_refused_and_leaves_nothing(
    tmp_path: Path, members: int
) -> None:
    path, made = tmp_path / "zeros.zip", tmp_path / "made"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for number in range(members):
            written.writestr(f"zeros-{number}", bytes((100 << 20) // members))
    assert path.stat().st_size < 1 << 20

    with pytest.raises(OSError, match=r"zeros\.zip would be 104857\d+ bytes, .*; unpack it"):
        await Environments(made).directory(str(path), "one")

    assert [] == list(made.iterdir())


async def test_without_packages_it_is_the_launchers_own_interpreter(tmp_path: Path) -> None:
    assert sys.executable == await Environments(tmp_path / "made").interpreter(())
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
@needs_uv
async def test_packages_come_before_those_of_the_launcher(tmp_path: Path) -> None:
    # Its own numpy, as it were.
    wheel = make_wheel(tmp_path, "msgpack", "99.0", "version = 'ours'\n")
    environments = Environments(tmp_path / "made")

    # Two replicas ask at once; a third one later.
    found = await asyncio.gather(*(environments.interpreter([str(wheel)]) for _ in range(2)))
    found.append(await Environments(tmp_path / "made").interpreter([str(wheel)]))

    assert 1 == len(set(found))
    code = "import grpc, msgpack, pyserve; print(msgpack.version)"
    ran = await asyncio.to_thread(
        subprocess.run, [found[0], "-c", code], capture_output=True, text=True, check=True
    )
    assert "ours" == ran.stdout.strip()
    assert 1 == len(list((tmp_path / "made").iterdir()))


@pytest.mark.slow
@needs_uv
async def test_what_cannot_be_installed_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    missing = tmp_path / "nothing-1.0-py3-none-any.whl"

    with pytest.raises(OSError, match=r"(?s)`uv pip` for a runtime_env failed: .*nothing"):
        await Environments(tmp_path / "made").interpreter([str(missing)])

    assert [] == list((tmp_path / "made").iterdir())


async def test_without_uv_the_text_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_kwargs: None)

    with pytest.raises(OSError, match="pip install uv"):
        await Environments(tmp_path / "made").interpreter(["anything"])


async def test_a_folder_is_used_as_it_is_and_an_archive_unpacked(tmp_path: Path) -> None:
    environments = Environments(tmp_path / "made")
    assert str(tmp_path) == await environments.directory(str(tmp_path), "one")
    assert "" == await environments.directory("", "one")

    first = await environments.directory(
        str(archive(tmp_path / "a.zip", model="FLAVOUR = 1")), "one"
    )
    again = await environments.directory(
        str(archive(tmp_path / "b.zip", model="FLAVOUR = 1")), "one"
    )
    other = await environments.directory(
        str(archive(tmp_path / "a.zip", model="FLAVOUR = 2")), "one"
    )

    assert "FLAVOUR = 1" == (Path(first) / "model.py").read_text()
    assert "FLAVOUR = 2" == (Path(other) / "model.py").read_text()
    assert first != other
    assert "FLAVOUR = 1" == (Path(again) / "model.py").read_text()


async def test_an_archive_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("no archive")

    with pytest.raises(OSError, match=r"the working_dir .*a\.zip cannot be unpacked"):
        await Environments(tmp_path / "made").directory(str(tmp_path / "a.zip"), "one")
    with pytest.raises(FileNotFoundError):
        await Environments(tmp_path / "made").directory(str(tmp_path / "missing.zip"), "one")


async def test_packages_of_another_content_are_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(
        environments, "_install", lambda place, _lines, _run: made.append(str(place.mkdir()))
    )
    places = set()
    for version in ("1.0", "1.00"):
        wheel = make_wheel(tmp_path, "of_ours", "1.0", f"version = {version!r}\n")
        places.add(await Environments(tmp_path / "made").interpreter([str(wheel)]))
    assert 2 == len(places) == len(made)


@pytest.mark.slow
async def test_an_installation_that_nobody_waits_for_any_more_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"

    def install(_place: Path, _lines: object, run: Callable[..., None]) -> None:
        begun.touch()
        run(sys.executable, "-c", "import time; time.sleep(600)")

    monkeypatch.setattr(environments, "_install", install)
    made = Environments(tmp_path / "made")
    first = asyncio.ensure_future(made.interpreter(["any"]))
    second = asyncio.ensure_future(made.interpreter(["any"]))
    await eventually(begun.exists)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second

    await eventually(lambda: not any((tmp_path / "made").iterdir()))


async def test_what_killed_meshes_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    old, new = (folder / f"archive-{'0' * 64}.{name}" for name in ("old", "new"))
    own = folder / "archive-of-mine.old"
    for each in (old, new, own):
        each.mkdir(parents=True)
    for each in (old, own):
        os.utime(each, (0, 0))

    await Environments(folder).directory(
        str(archive(tmp_path / "a.zip", model="FLAVOUR = 1")), "one"
    )

    assert not old.exists()
    assert new.exists()
    assert own.exists()


def is_there(place: Path) -> int:
    """Return the inode of what was unpacked, 0 if it is not there."""
    file = place / "model.py"
    return file.stat().st_ino if file.exists() else 0


async def test_an_archive_goes_when_nobody_uses_it_any_more(tmp_path: Path) -> None:
    folder, path = tmp_path / "made", str(archive(tmp_path / "a.zip", model="FLAVOUR = 1"))
    environments = Environments(folder, kept_s=0.0)
    place = Path(await environments.directory(path, "one"))
    assert str(place) == await environments.directory(path, "two")
    before = place.with_name("archive-" + "0" * 64)  # Of a mesh that was killed.
    await asyncio.to_thread(before.mkdir)

    environments.release("one")
    environments.release("one")
    await eventually(lambda: not before.exists())
    assert is_there(place), "another one uses it"
    process = await asyncio.create_subprocess_exec("sleep", "60", cwd=place)
    try:
        environments.release("two")
        environments.close()
        assert is_there(place), "a process of a controller before works in it"
    finally:
        process.kill()
        await process.wait()
    environments.close()
    assert not is_there(place)
    assert str(place) == await environments.directory(path, "one"), "it is unpacked anew"
    assert is_there(place)


async def test_an_archive_stays_for_one_that_starts_anew(tmp_path: Path) -> None:
    environments = Environments(tmp_path / "made")
    path = str(archive(tmp_path / "a.zip", model="FLAVOUR = 1"))
    place = Path(await environments.directory(path, "one"))
    before = is_there(place)

    environments.release("one")

    assert str(place) == await environments.directory(path, "two")
    assert before == is_there(place)
    environments.release("two")
    environments.close()
    assert not is_there(place)
