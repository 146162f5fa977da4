"""``python -m pyserve.replica``: the entry of launchers, which wires a replica's parts."""

import sys

from pyserve.control.discovery import MeshAddress
from pyserve.ingress.in_process import InProcessRouter
from pyserve.replica.process import main
from pyserve.replica.worker import WorkerSettings


def _open_mesh(settings: WorkerSettings) -> InProcessRouter:
    controller = MeshAddress(controller=settings.controller, token=settings.token)
    return InProcessRouter(
        controller, settings.mesh.node, settings.mesh.run_dir, settings.mesh.routing
    )


sys.exit(main(_open_mesh))
