"""What ``pyserve run --reload`` loads in a process of its own, and which files concern it."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from pyserve.cli.commands import CommandFailed
from pyserve.cli.reloading import Loader, Reloading
from pyserve.cli.target import Asked
from pyserve.wire.v1 import control_pb2
from tests.support.waiting import wait_until

_APP = """
import pyserve
import reload_shared

print("user code may print")

@pyserve.deployment
class Hello:
    def __init__(self, word="hello"):
        pass
    def __call__(self, request):
        return reload_shared.WORD

app = Hello.bind()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reload_app.py").write_text(_APP)
    (tmp_path / "reload_shared.py").write_text("WORD = 'hello'\n")
    return tmp_path


def _names(paths: object) -> set[str]:
    return {each.name for each in paths}  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_folder_of_the_code_is_watched_too(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    loader = Loader(Asked(target="reload_app.app", app_dir=str(folder)))

    loader.load()

    assert {"reload_app.py", "reload_shared.py"} == _names(loader.files)


@pytest.mark.slow
@pytest.mark.parity("G-61")
def test_each_load_sees_the_files_as_they_are(folder: Path) -> None:
    loader = Loader(
        Asked(target="reload_app:Hello", arguments=["word=x"], name="shop", route_prefix="/shop")
    )

    first, again = loader.load(), loader.load()
    (folder / "reload_shared.py").write_text("WORD = 'good morning'\n")
    assert {"reload_shared.py"} == _names(loader.changed())
    edited = loader.load()

    assert first == again
    assert first != edited
    (application,) = edited.applications
    assert ("shop", "/shop") == (application.application, application.route_prefix)
    assert {"reload_app.py", "reload_shared.py"} == _names(loader.files)
    assert {folder} == loader.folders()
    assert set() == loader.changed()


@pytest.mark.slow
@pytest.mark.parity("G-61")
def test_what_cannot_be_loaded_is_told_and_whatever_may_mend_it_concerns(folder: Path) -> None:
    loader = Loader(Asked(target="reload_app:app"))
    loader.load()
    other = folder / "new_module.py"
    assert not loader.concerns(other)

    (folder / "reload_shared.py").write_text("def half(:\n")
    with pytest.raises(CommandFailed) as refused:
        loader.load()

    assert "importing reload_app failed" in str(refused.value)
    assert "def half(:" in refused.value.traceback
    assert [True, True, False] == [
        loader.concerns(each) for each in (folder / "reload_shared.py", other, folder / "notes.txt")
    ]
    assert set() == loader.changed()


@pytest.mark.slow
def test_the_file_of_applications_is_watched_too(folder: Path) -> None:
    file = folder / "serve.yaml"
    file.write_text("applications: [{import_path: 'reload_app:app'}]\n")
    loader = Loader(Asked(target="serve.yaml"))
    loader.load()

    file.write_text("applications: [{import_path: 'reload_app:app', name: shop}]\n")

    assert {file} == loader.changed()
    assert "shop" == loader.load().applications[0].application


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda folder: (folder / "reload_shared.py").unlink(), "importing reload_app failed"),
        (
            lambda folder: (folder / "reload_shared.py").write_text("import os\nos._exit(3)\n"),
            "ended with exit status 3",
        ),
    ],
)
def test_a_load_that_ends_early_is_told(
    folder: Path, break_it: Callable[[Path], object], said: str
) -> None:
    break_it(folder)

    with pytest.raises(CommandFailed, match=said):
        Loader(Asked(target="reload_app:app")).load()


def test_files_that_come_and_go_differ(folder: Path) -> None:
    loader = Loader(Asked(target="serve.yaml"))
    file = folder / "serve.yaml"
    loader.files = {file: []}
    assert set() == loader.changed()
    file.write_text("")
    assert {file} == loader.changed()
    os.utime(file, ns=(0, 0))
    loader.files = {file: [0, 0]}
    assert set() == loader.changed()


def test_standard_input_cannot_be_watched() -> None:
    with pytest.raises(click.UsageError, match="standard input is none"):
        Loader(Asked(target="-"))


class _Failing(Loader):
    """Fails as machines do, and says when it is asked."""

    def __init__(self, folder: Path, fails_at: str) -> None:
        super().__init__(Asked(target="reload_app:app"))
        self.files = {folder / "reload_app.py": []}
        self.loads = 0
        self._fails_at = fails_at

    def prepare(self) -> None:
        """Start no process."""

    def folders(self) -> set[Path]:
        if self._fails_at == "watch":
            raise OSError("too many files are watched")
        return super().folders()

    def load(self) -> control_pb2.ApplyRequest:
        self.loads += 1
        raise OSError(f"no memory for load {self.loads}")


_SESSION: Any = SimpleNamespace(client=SimpleNamespace(status=control_pb2.StatusReply))


def test_a_load_that_fails_by_itself_is_told_and_the_next_edit_tries_again(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loader = _Failing(folder, "load")
    run: Any = None  # Nothing comes so far.
    with Reloading(loader, _SESSION, run):
        # Files that differ from the loaded ones are found without an edit.
        wait_until(lambda: loader.loads == 1)
        (folder / "reload_app.py").write_text(f"{_APP}#")
        wait_until(lambda: loader.loads == 2)
    told = capfd.readouterr().err
    assert "Error: nothing was reloaded: OSError: no memory for load 1\n" in told
    assert told.count("pyserve: the version before serves on\n") >= 1


def test_a_watch_that_ends_is_told(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run: Any = None
    with Reloading(_Failing(folder, "watch"), _SESSION, run):
        wait_until(lambda: "pyserve-reload" not in [each.name for each in threading.enumerate()])
    # Reading empties what has been captured, and would lose a line written meanwhile.
    told = capfd.readouterr().err
    assert "files are watched no more (OSError: too many files are watched)" in told
