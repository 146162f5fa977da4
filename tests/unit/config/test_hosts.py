"""What hosts of addresses mean here."""

from __future__ import annotations

import pytest

from pyserve.config import is_everywhere, local_host


@pytest.mark.parametrize(
    ("bound", "dialled"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("[::]", "[::1]"), ("0:0:0:0:0:0:0:0", "::1")],
)
def test_what_is_bound_everywhere_is_reached_over_the_loopback(bound: str, dialled: str) -> None:
    assert is_everywhere(bound)
    assert dialled == local_host(bound)


@pytest.mark.parametrize("bound", ["127.0.0.1", "10.0.0.1", "::1", "[2001:db8::1]", "a.example"])
def test_other_hosts_are_dialled_as_they_are(bound: str) -> None:
    assert not is_everywhere(bound)
    assert bound == local_host(bound)
