"""For the tests of services: applications in this process, their clients, requests without one.

::

    with pyserve.testing.local(app) as handle:
        assert handle.remote("x").result(timeout_s=5) == "X"

    with pyserve.testing.client(app) as client:
        assert client.http.get("/greet").json() == {"text": "hello"}

    with pyserve.testing.request(multiplexed_model_id="small"):
        assert await Translator("de").translate("yes") == "ja"

    driven = pyserve.testing.drive(Model(), requests, seed=7)
    assert driven.values[0] == ["a", "b"]

Nothing here starts a process, and ``client`` alone listens at a port, on the loopback.
"""

from pyserve.testing.client import Client, client
from pyserve.testing.driving import Arrival, Driven, drive
from pyserve.testing.local import local, replica, request

__all__ = ["Arrival", "Client", "Driven", "client", "drive", "local", "replica", "request"]
