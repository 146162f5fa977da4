"""Plain HTTP: requests for the ``__call__`` of a deployment.

``plans`` compiles the method into a handler for ``pyserve.aio``; ``arguments`` makes its arguments
from a request, ``answers`` makes an answer from its result or exception.
Starlette is imported only for handlers that take its requests, and by those that return its
responses. ASGI applications have a package of their own beside this one.
"""

from pyserve.replica.http.behind import behind
from pyserve.replica.http.plans import plain_handler

__all__ = ["behind", "plain_handler"]
