"""One application in a mesh of its own, with or without TLS; see ``benchmarks.pyserve_mesh``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import pyserve
from benchmarks.cpu import mesh_pids
from benchmarks.doors import applications
from benchmarks.doors.certificates import write_certificate
from services.echo.service import app as echo_app

_APPLICATIONS = {
    "plain": applications.plain_app,
    "fastapi": applications.framed_app,
    "bare": applications.bare_app,
    "echo": echo_app,
}


def main() -> None:
    """Run the mesh until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("application", choices=sorted(_APPLICATIONS))
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyserve-bench-tls-") as folder:
        arguments: list[str] = []
        if options.tls:
            files = write_certificate(Path(folder))
            os.environ["PYSERVE_TLS_CERT_FILE"] = str(files.certificate)
            os.environ["PYSERVE_TLS_KEY_FILE"] = str(files.key)
            arguments = ["--tls-ca", str(files.certificate)]
        pyserve.start(address="127.0.0.1:0")
        try:
            pyserve.run(_APPLICATIONS[options.application])
            status = pyserve.status()
            report = {
                "address": status.addresses[0],
                "pids": mesh_pids(status),
                "arguments": arguments,
            }
            print(json.dumps(report), flush=True)
            sys.stdin.buffer.read()
        finally:
            pyserve.shutdown(grace_s=1.0)


if __name__ == "__main__":
    main()
