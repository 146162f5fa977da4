"""What stands in front of the replicas: the routing table's feed and the listener."""

from pyserve.gateway.feed import TableFeed
from pyserve.gateway.front import IngressFront
from pyserve.gateway.ingress import IngressServer
from pyserve.gateway.security import IngressSecurity

__all__ = ["IngressFront", "IngressSecurity", "IngressServer", "TableFeed"]
