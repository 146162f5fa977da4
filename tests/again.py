"""Run pytest, and once more by itself what failed by chance: `python -m tests.again ...`.

Tests wait for processes and for the machine, and of eleven thousand one now and then loses to
it. At most `MOST` failures are run a second time, alone. Each is named at the end even if it passes
then, because a test that fails by chance has a fault to mend.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# More failures than this have a cause that a second run would hide. When the whole machine stands
# still for half a minute, a test of each worker fails, and perhaps the one after it.
MOST = 8
# Tests that only read the tree. They never fail by chance.
FINAL = ("tests/tidy/", "tests/typing/")


class Failures:
    """The tests that failed, and whether each may be run again."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_final = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure. What fails after its test is a leak, which is not run again."""
        if not report.failed:
            return
        self.names.append(report.nodeid)
        if report.when == "teardown" or report.nodeid.startswith(FINAL):
            self.is_final = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that a file cannot be read."""
        self.is_final = self.is_final or report.failed

    @property
    def may_run_again(self) -> bool:
        """Whether all the failures may be due to chance."""
        return bool(self.names) and not self.is_final and len(self.names) <= MOST


def main(arguments: list[str]) -> int:
    """Run pytest with `arguments`; return its exit status, or 0 if what failed passes alone."""
    failures = Failures()
    status = int(pytest.main(arguments, plugins=[failures]))
    if status != pytest.ExitCode.TESTS_FAILED or not failures.may_run_again:
        return status
    print(f"\nOnce more, alone: {', '.join(failures.names)}", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", *failures.names], check=False)
    if again.returncode == 0:
        for name in failures.names:
            print(f"FAILED ONCE and passed alone, so mend it: {name}", flush=True)
    return again.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
