"""For the tests of services: applications in this process, and requests without a caller.

::

    with pyserve.testing.local(app) as handle:
        assert handle.remote("x").result(timeout_s=5) == "X"

    with pyserve.testing.request(multiplexed_model_id="small"):
        assert await Translator("de").translate("yes") == "ja"

Nothing here opens a socket or starts a process.
"""

from pyserve.testing.local import local
from pyserve.testing.requests import replica, request

__all__ = ["local", "replica", "request"]
