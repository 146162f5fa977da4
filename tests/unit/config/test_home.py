"""Where the files of a mesh are by default."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyserve.config import read_settings

_NOBODY = 65534


@contextmanager
def _nobody() -> Iterator[None]:
    """Act as a user who may look into no closed folder."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_home_directory_that_may_not_be_looked_into_is_not_used(tmp_path: Path) -> None:
    closed = tmp_path / "root"
    closed.mkdir(mode=0)
    expected = Path(tempfile.gettempdir()) / f"pyserve-{os.getuid()}"
    with _nobody():
        assert expected == read_settings({"HOME": str(closed / "home")}).home


def test_a_home_directory_of_the_user_is(tmp_path: Path) -> None:
    found = read_settings({"HOME": str(tmp_path)}).home
    assert found.is_relative_to(tmp_path / ".local" / "state" / "pyserve")
