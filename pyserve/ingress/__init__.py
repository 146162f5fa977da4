"""What stands in front of the replicas: the routing table's feed and the listener."""

from pyserve.ingress.feed import TableFeed
from pyserve.ingress.ingress import IngressServer

__all__ = ["IngressServer", "TableFeed"]
