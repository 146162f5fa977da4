"""Gangs of a version's replicas, and the members of incomplete ones. Pure.

The slots 0 ... n-1 of a version make gangs in their order. What starts is a whole gang, so one with
fewer members has lost some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from pyserve.control.state.mesh import EXTERNAL_SLOT, Desired, Phase, Replica, Slot


def gang_of(slot: int, size: int) -> int | None:
    """Return the number of the gang of a slot; ``None``: it starts alone."""
    return slot // size if size > 1 else None


def whole_gangs(slots: Sequence[int], size: int) -> list[int]:
    """Return those of the slots, in ascending order, whose gang has all of its slots there."""
    gangs = (list(group) for _, group in groupby(slots, lambda each: each // size))
    return [each for gang in gangs if len(gang) == size for each in gang]


def grouped(slots: Mapping[int, Slot], size: int) -> Iterable[list[Slot]]:
    """Yield the slots of each gang."""
    for _, group in groupby(sorted(slots), lambda each: each // size):
        yield [slots[each] for each in group]


def broken(deployment: Desired, replicas: Sequence[Replica]) -> list[Replica]:
    """Return the replicas that have lost one of their gang and are not told to end yet.

    Args:
        deployment: where it is to end, they end in their order like all others.
        replicas: all of the deployment.
    """
    versions = [each for each in (deployment.target, deployment.fallback) if each is not None]
    if all(each.options.gang_size == 1 for each in versions):
        return []
    return [
        each
        for (_, _, size), members in _gangs(replicas).items()
        if len(members) < size
        for each in members
    ]


def only_whole(chosen: Sequence[Replica], live: Sequence[Replica], limit: int) -> list[Replica]:
    """Return the first of ``chosen``, as many as the limit, but no part of a gang.

    Args:
        chosen: those to end, in the order in which they should.
        live: all that have not been told to end.
        limit: how many may end.
    """
    gangs = _gangs(live)
    of = {each.id: members for members in gangs.values() for each in members}
    may = {each.id for each in chosen}
    found: dict[str, Replica] = {}
    for each in chosen:
        together = of.get(each.id, [each])
        if each.id in found or any(other.id not in may for other in together):
            continue
        if len(found) + len(together) <= limit:
            found.update((other.id, other) for other in together)
    return list(found.values())


def _gangs(replicas: Sequence[Replica]) -> dict[tuple[str, int, int], list[Replica]]:
    """Return the members of each gang that have not been told to end."""
    gangs: dict[tuple[str, int, int], list[Replica]] = {}
    for each in replicas:
        size = each.options.gang_size
        if size > 1 and each.slot != EXTERNAL_SLOT and each.phase is not Phase.STOPPING:
            gangs.setdefault((each.version, each.slot // size, size), []).append(each)
    return gangs
