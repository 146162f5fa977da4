"""Modules that are imported only when they are needed."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["pyserve", "pyserve.replica.worker"])
def test_starlette_comes_with_the_handlers_that_want_it(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {{'starlette', 'fastapi'}}))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "[]" == found.stdout.strip()
