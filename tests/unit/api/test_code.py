"""How classes travel: by import path where a module reaches them, else by value."""

import linecache
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import pyserve
from pyserve.api import pickling
from pyserve.api.code import ShippedCode, import_attribute, prepare_interpreter, receive, ship
from pyserve.errors import ImportPathError


class Plain:
    class Inner:
        pass


@pyserve.deployment
class Decorated:
    pass


@pytest.mark.parametrize("target", [Plain, Plain.Inner, Decorated.target])
def test_a_reachable_class_travels_as_its_path(target: type) -> None:
    code = ship(target)
    assert f"{__name__}:{target.__qualname__}" == code.import_path
    assert b"" == code.pickled
    assert target is receive(code)


def test_a_local_class_travels_by_value() -> None:
    class Local:
        answer = 42

    code = ship(Local)
    assert "" == code.import_path
    assert 42 == receive(code).answer  # type: ignore[union-attr]


def test_a_class_of_main_travels_by_value_and_main_is_not_run_again() -> None:
    target = type("Script", (), {"__module__": "__main__"})
    assert "" == ship(target).import_path


def test_a_class_that_its_module_does_not_reach_travels_by_value() -> None:
    shadowed = type("Plain", (), {"__module__": __name__, "answer": 1})
    assert "" == ship(shadowed).import_path
    assert 1 == receive(ship(shadowed)).answer  # type: ignore[union-attr]


def test_what_is_no_class_is_refused() -> None:
    with pytest.raises(ImportPathError, match="must be a class or a function"):
        receive(ShippedCode(pickled=cloudpickle.dumps(3)))
    with pytest.raises(ImportPathError, match="must be a class or a function"):
        receive(ShippedCode(import_path="math:pi"))


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("math", "write module:attribute"),
        (":pi", "write module:attribute"),
        ("no_such_module:x", "no module 'no_such_module'.*looked in"),
        ("math.deeper:x", "no module 'math.deeper'"),
        ("./services/app.py:app", "names a file.*e.g. services.app:app"),
        ("app.py:app", "names a file.*e.g. app:app"),
        ("..:app", "names a file.*e.g. module:app"),
        ("math:PI", "did you mean 'pi'"),
        (f"{__name__}:Plain.Iner", "did you mean 'Inner'"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_to_write(path: str, says: str) -> None:
    with pytest.raises(ImportPathError, match=says):
        import_attribute(path)


def test_a_module_that_is_missing_is_told_with_what_was_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ``--app-dir``, where the working directory is not on the path."""
    here, searched = tmp_path / "here", tmp_path / "searched"
    for folder in (here, searched / "unlikely_package"):
        folder.mkdir(parents=True)
    (here / "unlikely_service.py").touch()
    (searched / "unlikely_package" / "__init__.py").touch()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [str(searched), *filter(None, sys.path)])
    for path, says in (
        ("unlikely_service:app", f"looked in {searched} and .* but it is in {here}: name"),
        ("unlikely_other:app", f"looked in {searched} and the rest of sys.path. Name"),
        ("unlikely_package.deep:app", f"looked in {searched}/unlikely_package. Correct"),
        ("math.deeper:app", "looked in math, no package"),
    ):
        with pytest.raises(ImportPathError, match=says):
            import_attribute(path)


def test_a_missing_import_inside_the_module_keeps_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        import_attribute("needs_more:app")


def test_a_receiver_gets_the_senders_directory_and_path_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/own", "", "/both"])
    prepare_interpreter(
        ShippedCode(sys_path=("/theirs", "/both"), working_directory=str(tmp_path / "."))
    )
    assert ["/theirs", "/both", "/own"] == sys.path
    assert tmp_path == Path.cwd()


def test_a_receiver_on_another_machine_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/own"])
    prepare_interpreter(ShippedCode(sys_path=("/theirs",), working_directory="/not/here"))
    assert [str(tmp_path), "/theirs", "/own"] == sys.path
    assert tmp_path == Path.cwd()


def test_an_empty_entry_of_the_path_becomes_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["", "/x"])
    assert (str(Path.cwd()), "/x") == ship(types.SimpleNamespace).sys_path


def test_what_annotations_name_travels_along_where_they_are_texts() -> None:
    module = types.ModuleType("__main__")
    exec(
        "from __future__ import annotations\n"
        "from fractions import Fraction\n"
        "def half(value: list[Fraction] | 'not here' | missing) -> Fraction: ...\n"
        "class Holder:\n"
        "    half = half\n",
        vars(module),
    )
    received = cloudpickle.loads(ship(module.Holder).pickled)
    assert "Fraction" == received.half.__annotations__["return"]
    assert module.Fraction is received.half.__globals__["Fraction"]


_CELL = """
def price(amount):
    return 1 / amount  # of a cell

class Shop:
    def sell(self):
        return price(0)
"""


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class that a notebook's cell defines: its name has no file, and linecache has its lines."""
    name = "/tmp/ipykernel_1/2.py"
    lines = _CELL.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, name, (len(_CELL), None, lines, name))
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(_CELL, name, "exec"), scope)
    found: type = scope["Shop"]
    return found


_REPLICA = """
import sys, traceback, cloudpickle
kind = cloudpickle.loads(sys.stdin.buffer.read())
try:
    kind().sell()
except ZeroDivisionError:
    traceback.print_exc()
"""


@pytest.mark.slow
def test_the_lines_of_a_notebooks_cell_come_along(cell: type) -> None:
    """In a traceback of the replica, of functions of the cell too that the class uses."""
    done = subprocess.run(
        [sys.executable, "-c", _REPLICA],
        input=ship(cell).pickled,
        capture_output=True,
        timeout=60,
        check=False,
    )
    trace = done.stderr.decode()
    assert "return price(0)" in trace
    assert "return 1 / amount  # of a cell" in trace


def test_no_more_lines_come_along_than_anybody_reads(
    cell: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(ship(cell).pickled)
    monkeypatch.setattr(pickling, "_SOURCES_CHARACTERS_MAX", len(_CELL) - 1)
    assert whole - len(_CELL) >= len(ship(cell).pickled)


def test_what_is_in_a_file_brings_no_source() -> None:
    class Local:
        def look(self) -> str:
            return "a text that nothing else has"

    assert b"def look" not in ship(Local).pickled
