"""services/echo in a mesh of its own: ingress and one replica, as ``pyserve.run`` starts them.

Prints one line of JSON, with the ingress's address, that of its metrics, and the processes of the
mesh, and serves until its standard input ends.
"""

from __future__ import annotations

import json
import sys

import pyserve
from benchmarks.cpu import mesh_pids
from services.echo.service import app


def main() -> None:
    """Run the mesh."""
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(app)
        status = pyserve.status()
        report = {
            "address": status.addresses[0],
            "pids": mesh_pids(status),
            "admin": status.ingresses[0].admin,
        }
        print(json.dumps(report), flush=True)
        sys.stdin.buffer.read()
    finally:
        pyserve.shutdown(grace_s=1.0)


if __name__ == "__main__":
    main()
