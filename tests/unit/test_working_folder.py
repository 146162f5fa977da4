"""The folder of a process is on the path while a setting is imported, and not before or after."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from pathlib import Path

import pytest

from pyserve import working_folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "only_here.py").write_text("VALUE = 7\n")
    (tmp_path / "raises.py").write_text("raise AssertionError\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(Path()))])
    monkeypatch.delitem(sys.modules, "only_here", raising=False)
    return tmp_path


def test_modules_of_the_folder_are_found_for_so_long(here: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("only_here")
    with working_folder.importable(), working_folder.importable():
        assert 7 == importlib.import_module("only_here").VALUE
    del sys.modules["only_here"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("only_here")
    assert str(here) not in sys.path
    assert "" not in sys.path


def test_what_raises_leaves_the_path_as_it_was(here: Path) -> None:
    before = list(sys.path)

    def load() -> None:
        with working_folder.importable():
            sys.path.insert(0, str(here))
            importlib.import_module("raises")

    with pytest.raises(AssertionError):
        load()
    assert [str(here), *before] == sys.path


def test_a_path_that_has_the_folder_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    before = list(sys.path)
    with working_folder.importable():
        assert before == sys.path
    assert before == sys.path


def test_others_are_on_the_path_in_their_order_until_the_last_one_needs_them_no_more(
    here: Path,
) -> None:
    before = list(sys.path)
    one, two = str(here / "one"), str(here / "two")
    with contextlib.ExitStack() as longer:
        with working_folder.importable([one, two, before[0]]):
            longer.enter_context(working_folder.importable([two]))
            assert [*before, one, two] == sys.path
        assert [*before, two] == sys.path
    assert before == sys.path


def test_an_import_that_does_not_end_holds_up_no_other(here: Path) -> None:
    begun, ending = threading.Event(), threading.Event()

    def import_for_long() -> None:
        with working_folder.importable():
            begun.set()
            assert ending.wait(30)

    slow = threading.Thread(target=import_for_long)
    slow.start()
    try:
        assert begun.wait(30)
        quick = threading.Thread(target=_import_only_here)
        quick.start()
        quick.join(30)
        assert not quick.is_alive()
        assert "" in sys.path
    finally:
        ending.set()
        slow.join(30)
    assert "" not in sys.path
    assert "only_here" in sys.modules


def _import_only_here() -> None:
    with working_folder.importable():
        importlib.import_module("only_here")
