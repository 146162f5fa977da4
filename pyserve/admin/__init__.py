"""The admin server of a node: one port where people and programs see what a mesh does.

Started by the process that hosts the ingress, or by one that is alone on its node. It listens from
the start on and loads what answers HTTP when the first client comes, so a mesh that nobody looks
at pays nothing for it. Payloads and secrets are never shown.
"""

from pyserve.admin.context import AdminContext, Described, Door, Front
from pyserve.admin.gathering import NodeGathering
from pyserve.admin.hosting import ThreadedAdmin, make_admin, showing_metrics
from pyserve.admin.places import advertised_address
from pyserve.admin.server import AdminServer

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
