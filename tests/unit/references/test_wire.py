"""The messages of the side socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.references import Descriptor, wire

TOKEN = b"token" * 8
NONCE, OTHER = b"n" * 32, b"o" * 32


def test_both_sides_prove_the_token():
    proof = wire.answer(TOKEN, wire.challenge(NONCE), OTHER)
    welcome = wire.welcome(TOKEN, NONCE, proof)
    assert welcome is not None
    assert wire.is_welcome(TOKEN, OTHER, welcome)


@pytest.mark.parametrize(
    ("token", "nonce", "change"),
    [
        (b"another", NONCE, b""),
        (TOKEN, OTHER, b""),
        (TOKEN, NONCE, b"longer"),
        (b"", NONCE, b""),
    ],
)
def test_wrong_proofs_are_refused(token, nonce, change):
    proof = wire.answer(TOKEN, wire.challenge(NONCE), OTHER)
    assert None is wire.welcome(token, nonce, proof + change)


def test_no_token_proves_nothing():
    """A holder without a token trusts nobody, not everybody."""
    assert None is wire.welcome(b"", NONCE, wire.answer(b"", wire.challenge(NONCE), OTHER))


def test_a_proof_is_no_welcome():
    """One side cannot be made to answer for the other."""
    proof = wire.answer(TOKEN, wire.challenge(NONCE), OTHER)
    echoed = bytes((wire.WELCOME,)) + proof[1:33]
    assert not wire.is_welcome(TOKEN, NONCE, echoed)


@given(st.binary(max_size=100))
def test_arbitrary_messages_are_read_or_refused(message):
    for read in (wire.read_take, wire.read_taken, wire.read_lost, wire.read_note):
        try:
            read(b"\x04" + message)
        except wire.WireError:
            continue
    assert None is wire.welcome(TOKEN, NONCE, message)
    assert not wire.is_welcome(TOKEN, NONCE, message)


def test_requests_and_answers_arrive():
    assert (7, "key") == wire.read_take(wire.take(7, "key"))
    assert (2**40, 2**41) == wire.read_taken(wire.taken(2**40, 2**41))
    assert 9 == wire.read_lost(wire.lost(9))
    assert "ключ" == wire.read_note(wire.note(wire.DROP, "ключ"))


def test_only_the_same_user_may_connect():
    assert wire.may_connect(1000, 1000)
    assert not wire.may_connect(1001, 1000)
    assert not wire.may_connect(0, 1000)


DESCRIPTOR = Descriptor(
    holder_id="h", node="n", unix_path="/p", key="k", size_bytes=5, codec="raw", application="a"
)


def test_descriptors_arrive():
    assert DESCRIPTOR == Descriptor.from_wire(DESCRIPTOR.to_wire())


@pytest.mark.parametrize(
    "garbled",
    [
        None,
        [],
        "h",
        DESCRIPTOR.to_wire()[:-1],
        [*DESCRIPTOR.to_wire(), 1],
        [None, *DESCRIPTOR.to_wire()[1:]],
        [*DESCRIPTOR.to_wire()[:4], -1, *DESCRIPTOR.to_wire()[5:]],
        [*DESCRIPTOR.to_wire()[:4], True, *DESCRIPTOR.to_wire()[5:]],
    ],
)
def test_garbled_descriptors_are_refused(garbled):
    with pytest.raises(ValueError, match="a descriptor has"):
        Descriptor.from_wire(garbled)
