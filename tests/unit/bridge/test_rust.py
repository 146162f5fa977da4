"""The bridge gives the layers above it the native extension's own objects."""

from pyserve import _router
from pyserve.bridge import rust

# Names of types: the extension has no such objects.
IN_THE_STUB_ONLY = {"HttpFields", "HttpHeaders", "Metadata", "Payload"}


def test_nothing_stands_between_a_call_and_the_extension():
    """No wrapper: a call of the data path would pay for it each time."""
    wrapped = [
        name
        for name in set(rust.__all__) - IN_THE_STUB_ONLY
        if getattr(rust, name) is not getattr(_router, name)
    ]

    assert [] == wrapped
