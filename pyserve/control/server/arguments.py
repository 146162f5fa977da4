"""The command line of a controller's process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what ``python -m pyserve.control`` is told; None: by this process's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m pyserve.control",
        description="The controller of a mesh and its launcher.",
    )
    parser.add_argument(
        "--no-admin", action="store_true", help="an ingress of this node shows the metrics"
    )
    parser.add_argument(
        "--development", action="store_true", help="texts of exceptions may reach clients"
    )
    parser.add_argument(
        "--liveness-fd", type=int, help="socket that the starter holds open; the mesh ends with it"
    )
    parser.add_argument(
        "--persistent",
        action="store_true",
        help="keep the applications in the home directory, for the next start, and let replicas "
        "outlive this process",
    )
    parser.add_argument(
        "--screen-fd", type=int, help="pipe for lines, to whoever draws on the terminal"
    )
    parser.add_argument(
        "--lease",
        help="descriptors and run directory of a home that the keeper of this process has; the "
        "state lies there",
    )
    parser.add_argument(
        "--keeper-fd", type=int, help="pipe that the keeper holds open; the mesh ends with it"
    )
    parser.add_argument("--run-id", default="", help="of the `pyserve run` that starts it")
    parser.add_argument(
        "--report-fd", type=int, help="pipe for one line of JSON: where it listens, or the error"
    )
    return parser.parse_args(arguments)
