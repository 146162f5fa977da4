"""What stands in front of the replicas: the listener, and what an ingress answers itself."""

from pyserve.gateway.front import IngressFront
from pyserve.gateway.ingress import IngressServer
from pyserve.gateway.security import IngressSecurity

__all__ = ["IngressFront", "IngressSecurity", "IngressServer"]
