"""What stands in front of the replicas: the routing table's feed and the listener.

The package shares its name with the decorator ``pyserve.ingress``. Importing it makes it the
attribute of ``pyserve`` that the decorator was, so it can be called as the decorator.
"""

import sys
from types import ModuleType

from pyserve.api.ingress import IngressDecorator
from pyserve.api.ingress import ingress as _decorate
from pyserve.ingress.feed import TableFeed
from pyserve.ingress.front import IngressFront
from pyserve.ingress.ingress import IngressServer
from pyserve.ingress.security import IngressSecurity

__all__ = ["IngressFront", "IngressSecurity", "IngressServer", "TableFeed"]


class _Callable(ModuleType):
    def __call__(self, app: object, /) -> IngressDecorator:
        return _decorate(app)


sys.modules[__name__].__class__ = _Callable
