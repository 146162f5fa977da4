"""Who gets which processors and devices, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.config import Resources
from pyserve.launch.ledger import Grant, Ledger, ResourcesUnavailable
from pyserve.types import ReplicaId

A, B, C = (ReplicaId(name) for name in "ABC")


@pytest.mark.parity("S-08")
def test_whole_processors_belong_to_one_replica():
    """Two that ask for whole ones share none; a third is refused until one ends."""
    ledger = Ledger(cpus=[0, 1, 2, 3])
    assert Grant(cpus=(0, 1)) == ledger.reserve(A, Resources(num_cpus=2))
    assert Grant(cpus=(2, 3)) == ledger.reserve(B, Resources(num_cpus=2))
    with pytest.raises(ResourcesUnavailable, match=r"num_cpus is 1, but of the 4 .* 0 are not"):
        ledger.reserve(C, Resources(num_cpus=1))
    ledger.release(A)
    assert Grant(cpus=(0,)) == ledger.reserve(C, Resources(num_cpus=1))


def test_replica_that_names_no_processors_reserves_none():
    """More replicas than processors run by default."""
    ledger = Ledger(cpus=[0])
    assert {Grant()} == {ledger.reserve(each, Resources()) for each in (A, B, C)}


@pytest.mark.parity("S-08")
def test_shares_of_a_device_fill_it_before_another_is_opened():
    """Halves see one device; a whole one is still left, and a second whole is refused."""
    ledger = Ledger(cpus=[0], gpus=["4", "7"])
    assert ("4",) == ledger.reserve(A, Resources(num_gpus=0.5)).gpus
    assert ("4",) == ledger.reserve(B, Resources(num_gpus=0.5)).gpus
    assert ("7",) == ledger.reserve(C, Resources(num_gpus=1)).gpus
    with pytest.raises(ResourcesUnavailable, match=r"num_gpus is 0\.5"):
        ledger.reserve(ReplicaId("D"), Resources(num_gpus=0.5))


def test_refused_reservation_takes_nothing():
    """A reservation is granted as a whole or not at all."""
    ledger = Ledger(cpus=[0, 1])
    with pytest.raises(ResourcesUnavailable, match="num_gpus"):
        ledger.reserve(A, Resources(num_cpus=2, num_gpus=1))
    assert Grant(cpus=(0, 1)) == ledger.reserve(B, Resources(num_cpus=2))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Resources(num_gpus=1), "num_gpus is 1, but this machine has none; ask for less"),
        (Resources(num_gpus=0.5), "num_gpus is 0.5, but this machine has none"),
        (Resources(num_cpus=3), "num_cpus is 3, but this machine has only 2"),
        (Resources(resources={"tpu": 2}), "resources['tpu'] is 2, but this machine has none"),
    ],
)
def test_what_a_machine_never_has_is_told_as_such(wanted: Resources, said: str):
    """It would not help to wait for other replicas to end."""
    with pytest.raises(ResourcesUnavailable) as refused:
        Ledger(cpus=[0, 1]).reserve(A, wanted)
    assert str(refused.value).startswith(said)
    assert "reserved" not in str(refused.value)


def test_unknown_resource_is_refused_by_name():
    """A misspelt name must not count as endless."""
    with pytest.raises(ResourcesUnavailable, match="tpu"):
        Ledger(cpus=[0]).reserve(A, Resources(resources={"tpu": 1}))


@given(st.lists(st.tuples(st.sampled_from("ABCDE"), st.sampled_from([0, 0.3, 0.5, 1, 2, None]))))
def test_no_processor_is_given_twice(steps):
    """Whatever comes and goes, grants are disjoint and their sum fits."""
    ledger = Ledger(cpus=[0, 1, 2])
    held: dict[str, tuple[Grant, float]] = {}
    for name, amount in steps:
        if amount is None or name in held:
            ledger.release(ReplicaId(name))
            held.pop(name, None)
            continue
        try:
            held[name] = ledger.reserve(ReplicaId(name), Resources(num_cpus=amount)), amount
        except ResourcesUnavailable:
            assert sum(share for _, share in held.values()) + amount > 3 - 1e-6
        pinned = [number for grant, _ in held.values() for number in grant.cpus]
        assert len(pinned) == len(set(pinned))
        assert sum(share for _, share in held.values()) <= 3 + 1e-6
