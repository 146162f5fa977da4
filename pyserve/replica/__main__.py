"""``python -m pyserve.replica``: the entry of launchers, which wires a replica's parts."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.ingress.in_process import InProcessRouter
    from pyserve.replica.worker import WorkerSettings


def _main() -> int:
    # grpcio's fork handlers start threads in the child, which crash now and then (seen with
    # 1.85: SIGSEGV in one of three forks by multiprocessing). Nothing here uses grpcio in a
    # child, so they are switched off, before grpcio is imported, which reads the variable.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from pyserve.replica.process import main

    return main(_open_mesh)


def _open_mesh(settings: WorkerSettings) -> InProcessRouter:
    from pyserve.control.discovery import MeshAddress
    from pyserve.ingress.in_process import InProcessRouter

    controller = MeshAddress(controller=settings.controller, token=settings.token)
    return InProcessRouter(controller, settings.mesh.node)


sys.exit(_main())
