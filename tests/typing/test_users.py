"""Code of users under mypy and pyright: what is right passes, each mistake is found in its line.

basedpyright stands for pyright: it is the same checker, and its wheel brings the JavaScript and a
node to run it; the package ``pyright`` fetches both when it is first used.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.parity("G-54")]

USERS = Path(__file__).parent / "users"
# Both read pyserve as it is installed, with everything that it imports, at the first time.
_TIMEOUT_S = 280
_CHECKED_MIN = 40
_MARK = "  # E"
_FOUND = re.compile(r"(?P<file>\w+\.pyi?):(?P<line>\d+):(\d+:)? error: (?P<text>.*)")

Errors = dict[int, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project of a user's, with the stubs that ``pyserve proto`` makes."""
    place = tmp_path_factory.mktemp("users")
    for name in ("passes.py", "mistakes.py", "shop.proto"):
        shutil.copy(USERS / name, place / name)
    _run(place, "pyserve", "proto", ".")
    return place


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(folder: Path, name: str) -> Errors:
    """Return what mypy finds, the first error of each line."""
    # Not the cache of this repository's own check, whose options are others.
    cache = Path(__file__).parents[2] / ".mypy_cache" / "users"
    told = _run(
        folder,
        *("mypy", "--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary"),
        name,
    )
    errors: Errors = {}
    for found in _FOUND.finditer(told):
        assert name == found["file"], told
        errors.setdefault(int(found["line"]), found["text"])
    return errors


def pyright(folder: Path, name: str) -> Errors:
    """Return the same of pyright."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed; pip install basedpyright brings its own node")
    settings = {"typeCheckingMode": "standard", "include": [name]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    told = _run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable)
    errors: Errors = {}
    for each in json.loads(told)["generalDiagnostics"]:
        if each["severity"] == "error":
            assert Path(each["file"]).name == name, each
            errors.setdefault(each["range"]["start"]["line"] + 1, each["message"])
    return errors


CHECKERS = [mypy, pyright]


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_right_passes(checker: Callable[[Path, str], Errors], folder: Path):
    assert _CHECKED_MIN <= (USERS / "passes.py").read_text().count("assert_type(")
    assert {} == checker(folder, "passes.py")


@pytest.mark.parametrize("name", ["shop_pb2.pyi", "shop_pb2_grpc.pyi"])
@pytest.mark.parametrize("checker", CHECKERS)
def test_generated_types_pass_by_themselves(
    checker: Callable[[Path, str], Errors], name: str, folder: Path
):
    """A check of a whole folder includes these files."""
    assert {} == checker(folder, name)


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_mistake_is_found_in_its_line(checker: Callable[[Path, str], Errors], folder: Path):
    lines = (USERS / "mistakes.py").read_text().splitlines()
    marked = {number: line for number, line in enumerate(lines, 1) if line.endswith(_MARK)}
    found = checker(folder, "mistakes.py")

    assert _CHECKED_MIN <= len(marked)
    assert {} == {number: line for number, line in marked.items() if number not in found}
    assert {} == {number: text for number, text in found.items() if number not in marked}
