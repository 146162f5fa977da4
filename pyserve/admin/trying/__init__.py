"""Calls made from the page, through the same ingress as every client's calls.

Access rules, routing and limits are those of the ingress. A call's payloads are shown only to its
caller, and not kept.
"""

from pyserve.admin.trying.calls import DoorClosed, Event, TooManyTries, Tries
from pyserve.admin.trying.wanted import REQUEST_BYTES_MAX, Wanted, message_of, wanted_of

__all__ = [
    "REQUEST_BYTES_MAX",
    "DoorClosed",
    "Event",
    "TooManyTries",
    "Tries",
    "Wanted",
    "message_of",
    "wanted_of",
]
