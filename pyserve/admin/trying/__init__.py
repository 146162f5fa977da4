"""Calls that a person makes from the page, through the door that every client's calls take.

Access rules, routing and limits are those of the ingress. What a call carries and brings is told to
whoever made it, and kept nowhere.
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
