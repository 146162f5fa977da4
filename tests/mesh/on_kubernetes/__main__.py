"""``make kubernetes``: brings a cluster up where that can be done, tests on it, takes it down.

With an argument that is a program it runs ``PROGRAM up``, ``load IMAGE.tar`` and ``down``; else the
cluster of KUBECONFIG is used, whose nodes have the image that TEST_KUBERNETES_IMAGE names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.kubernetes_image import build

_IMAGES = ["pyserve-test:1", "pyserve-test:2"]
_BRING_UP_S, _LOAD_S = 3600, 600


def main() -> int:
    """Return pytest's status, 0 where no cluster is to be had."""
    tool = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if tool is not None and os.access(tool, os.X_OK) and tool.is_file() and os.getuid() == 0:
        with _brought_up(tool) as variables:
            return _test(variables)
    if "KUBECONFIG" in os.environ and "TEST_KUBERNETES_IMAGE" in os.environ:
        return _test({})
    print(
        "SKIPPED Kubernetes: there is neither a program that brings a cluster up (as root, "
        "KUBERNETES_TOOL=...), nor KUBECONFIG with TEST_KUBERNETES_IMAGE, an image of this tree "
        "that the nodes have."
    )
    return 0


@contextmanager
def _brought_up(tool: Path) -> Iterator[Mapping[str, str]]:
    begun = time.monotonic()
    done = _run(tool, "up", timeout_s=_BRING_UP_S)
    variables = dict(re.findall(r"(\w+)=(\S+)", done.splitlines()[-1]))
    variables["PATH"] = variables["PATH"].replace("$PATH", os.environ["PATH"])
    print(f"the cluster is up after {time.monotonic() - begun:.0f} s", flush=True)
    try:
        begun = time.monotonic()
        home = Path(variables["KUBECONFIG"]).parent
        _run(tool, "load", str(build(home / "images" / "python.tar", _IMAGES)), timeout_s=_LOAD_S)
        print(f"the image is on its nodes after {time.monotonic() - begun:.0f} s", flush=True)
        yield {
            **variables,
            "TEST_KUBERNETES_IMAGE": _IMAGES[0],
            "TEST_KUBERNETES_OTHER_IMAGE": _IMAGES[1],
            "TEST_KUBERNETES_TOOL": str(tool.resolve()),
        }
    finally:
        _run(tool, "down", timeout_s=120)
        print("the cluster is down")


def _run(*command: str | Path, timeout_s: float) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=True)
    return done.stdout


def _test(variables: Mapping[str, str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "pytest", "tests/mesh/on_kubernetes"),
            # Tests that pass print their measurements.
            *("-rPs", "--durations=0", "--durations-min=1", f"--basetemp={folder}/pytest"),
        ]
        environment = {**os.environ, **variables, "TEST_KUBERNETES": "1"}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
