"""Which failures `python -m tests.again` runs a second time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import MOST, Failures
from tests.tidy.tree import ROOT

FILE = "tests/mesh/test_x.py"


def _report(name: str, when: str = "call", outcome: str = "failed") -> pytest.TestReport:
    return pytest.TestReport(name, ("", 0, ""), {}, outcome, None, when)  # type: ignore[arg-type]


def _after(*reports: pytest.TestReport) -> bool:
    failures = Failures()
    for report in reports:
        failures.pytest_runtest_logreport(report)
    return failures.may_run_again


def test_a_few_failures_run_again():
    assert _after(*(_report(f"{FILE}::test_{n}") for n in range(MOST)))
    assert _after(_report("tests/unit/test_x.py::test"))
    assert _after(_report(FILE, "setup"), _report("tests/tidy/test_x.py", outcome="passed"))


def test_what_chance_does_not_explain_is_final():
    assert not _after(*(_report(f"{FILE}::test_{n}") for n in range(MOST + 1)))
    assert not _after(_report("tests/tidy/test_x.py::test"))
    assert not _after(_report(FILE), _report(FILE, "teardown"))
    assert not _after()


@pytest.mark.parametrize(("failures", "expected"), [(1, 0), (2, 1)])
def test_the_second_run_decides(tmp_path: Path, failures: int, expected: int):
    folder = tmp_path / "tests" / "mesh"
    folder.mkdir(parents=True)
    (folder / "test_x.py").write_text(
        "from pathlib import Path\n"
        "def test_x():\n"
        "    runs = Path('runs')\n"
        "    runs.write_text(runs.read_text() + 'x' if runs.exists() else 'x')\n"
        f"    assert {failures} < len(runs.read_text())\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    ended = subprocess.run(
        [sys.executable, "-m", "tests.again", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert expected == ended.returncode, ended.stderr
    passed = "FAILED ONCE and passed alone, so mend it: tests/mesh/test_x.py::test_x"
    assert (passed in ended.stdout) == (expected == 0)
