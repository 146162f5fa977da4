"""Which tests have to run in one process: those of a file, or of a folder with a mesh of its own.

A mesh of a folder is started in each process that runs tests of it, and again whenever that process
has had others in between.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).resolve().parents[2]


def together(test: str) -> str:
    """Return the file of a test, or its folder if all tests of the folder share something."""
    file = test.partition("::")[0]
    folder = file.rpartition("/")[0]
    return folder if _shares(folder) else file


@cache
def _shares(folder: str) -> bool:
    fixtures = _ROOT / folder / "conftest.py"
    return fixtures.exists() and 'scope="package"' in fixtures.read_text(encoding="utf-8")


class BySharedFixtures(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives files, and folders that share something, to one process each."""

    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)
