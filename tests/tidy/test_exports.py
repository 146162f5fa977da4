"""What `import pyserve` offers, and what it costs."""

import inspect
import subprocess
import sys

import pyserve

_PROBE = """
import socket, threading
made = []
original = socket.socket.__init__
socket.socket.__init__ = lambda self, *a, **k: (made.append(a), original(self, *a, **k))[1]
import pyserve
assert threading.active_count() == 1, threading.enumerate()
assert not made, made
import sys
print(" ".join(name for name in ("grpc", "numpy", "google.protobuf") if name in sys.modules))
"""


def test_every_exported_name_is_there():
    for name in pyserve.__all__:
        assert getattr(pyserve, name) is not None


def test_dir_lists_what_is_exported():
    public = {name for name in dir(pyserve) if not name.startswith("_")}

    assert sorted(pyserve.__all__) == sorted(public)
    assert sorted(pyserve.__all__) == list(pyserve.__all__)


def test_every_exported_class_and_function_says_what_it_is():
    silent = [
        name
        for name in pyserve.__all__
        if not inspect.getdoc(value := getattr(pyserve, name)) and callable(value)
    ]

    assert [] == silent


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(pyserve, "no_such_name")


def test_importing_starts_no_thread_and_opens_no_socket():
    result = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=30, check=False
    )

    assert (0, "") == (result.returncode, result.stderr)
    assert "" == result.stdout.strip()
