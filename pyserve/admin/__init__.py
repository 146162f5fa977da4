"""The admin server of a node: one port at which people and programs can observe a mesh.

Started by the process that hosts the ingress, or by one that is alone on its node. It listens from
the start and loads its HTTP server when the first client comes, so a mesh that is not observed pays
nothing for it. Payloads and secrets are never shown.
"""

from pyserve.admin.context import AdminContext, Described, Door, Front
from pyserve.admin.gathering import NodeGathering
from pyserve.admin.server import (
    AdminServer,
    ThreadedAdmin,
    advertised_address,
    make_admin,
    showing_metrics,
)

__all__ = [
    "AdminContext",
    "AdminServer",
    "Described",
    "Door",
    "Front",
    "NodeGathering",
    "ThreadedAdmin",
    "advertised_address",
    "make_admin",
    "showing_metrics",
]
