"""Fixtures that the tests of the benchmarks share."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.generator import GeneratorError, find_generator
from benchmarks.machine import ROOT

BUILD_TIMEOUT_S = 600


@pytest.fixture(scope="session")
def program() -> Path:
    """The load generator, built if it is not there."""
    return built("pyserve-loadgen")


@pytest.fixture(scope="session")
def simulator() -> Path:
    """The simulator of a mesh of thousands, built if it is not there."""
    return built("pyserve-meshload")


def built(name: str) -> Path:
    try:
        return find_generator(name=name)
    except GeneratorError:
        command = ["cargo", "build", "--locked", "--quiet", "-p", name]
        subprocess.run(command, cwd=ROOT, check=True, timeout=BUILD_TIMEOUT_S)
        return find_generator(name=name)
