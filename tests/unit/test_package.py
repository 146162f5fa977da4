"""What ``import pyserve`` does and does not do."""

import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import pyserve

_PROBE = """
import os, sys, threading
before = set(os.listdir("/proc/self/fd"))
import pyserve
assert set(os.listdir("/proc/self/fd")) == before, "a descriptor was opened"
assert threading.active_count() == 1, "a thread was started"
assert len(os.listdir("/proc/self/task")) == 1, "a native thread was started"
heavy = {"grpc", "rich", "click", "cloudpickle", "uvloop", "pyserve._router"} & set(sys.modules)
assert not heavy, f"loaded {heavy}"
for name in pyserve.__all__:
    getattr(pyserve, name)
assert len(os.listdir("/proc/self/task")) == 1, "looking names up started a thread"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_importing_the_package_starts_no_thread_and_opens_no_descriptor() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROBE],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (0, "") == (found.returncode, found.stderr)


def test_every_exported_name_exists() -> None:
    for name in pyserve.__all__:
        assert getattr(pyserve, name) is not None
    assert set(pyserve.__all__) <= set(dir(pyserve))


def test_a_name_is_a_module_or_something_else_and_never_both() -> None:
    """Importing a submodule would put it in the place of what the package exports."""
    modules = {found.name for found in pkgutil.iter_modules(pyserve.__path__)}
    exported = {name: getattr(pyserve, name) for name in pyserve.__all__}
    both = {name for name in modules & set(exported) if not isinstance(exported[name], ModuleType)}
    assert not both


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'deploymnt'"):
        _ = pyserve.deploymnt  # type: ignore[attr-defined]


def test_the_version_has_three_numbers() -> None:
    assert [True] * 3 == [part.isdigit() for part in pyserve.__version__.split(".")]
