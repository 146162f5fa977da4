"""What of this machine is reserved by which replica. Pure.

A replica that names a number of processors gets them for itself: whole ones are pinned, shares
are counted. One that names none reserves none, so that a laptop can run more replicas than it has
processors; its numerical libraries still get one thread. Graphics processors are always counted,
also in shares: two replicas of half a device see the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyserve.config import Resources
from pyserve.types import ReplicaId

# Sums of shares are compared with whole numbers: three thirds must fit into one.
_TOLERANCE = 1e-9


class ResourcesUnavailable(OSError):
    """Not enough is left on the machine; the text has the amounts requested, left, and in total."""


class ResourcesTaken(ResourcesUnavailable):
    """The machine has enough, but others hold it.

    Attributes:
        missed: What is to be free, and how much of it is.
    """

    def __init__(self, text: str, missed: str) -> None:
        super().__init__(text)
        self.missed = missed


@dataclass(frozen=True, slots=True)
class Grant:
    """The resources that one replica got.

    Attributes:
        cpus: Processors reserved for it; empty: it may use any.
        gpus: Devices that it may see, as ``CUDA_VISIBLE_DEVICES`` names them; empty: not said.
    """

    cpus: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()


@dataclass(slots=True)
class _Share:
    grant: Grant
    cpu_share: float = 0.0
    gpu_share: float = 0.0  # of the one device, when below 1
    custom: Mapping[str, float] | None = None


class Ledger:
    """Which replica holds which resources.

    Args:
        cpus: Numbers of the processors that may be used.
        gpus: Names of the graphics devices.
        custom: Amounts of what the operator declared by name.
    """

    def __init__(
        self,
        *,
        cpus: Sequence[int],
        gpus: Sequence[str] = (),
        custom: Mapping[str, float] | None = None,
    ) -> None:
        self._cpus = tuple(cpus)
        self._gpus = tuple(gpus)
        self._custom = dict(custom or {})
        self._shares: dict[ReplicaId, _Share] = {}

    def reserve(self, owner: ReplicaId, wanted: Resources) -> Grant:
        """Give ``owner`` everything it wants, or nothing.

        Raises:
            ResourcesTaken: Not enough is left now.
            ResourcesUnavailable: The machine does not have that much at all.
        """
        cpu = wanted.num_cpus or 0.0
        self._check("num_cpus", cpu, self._cpu_left(), len(self._cpus))
        for name, amount in wanted.resources.items():
            whole = self._custom.get(name, 0.0)
            taken = sum((each.custom or {}).get(name, 0.0) for each in self._shares.values())
            self._check(f"resources[{name!r}]", amount, whole - taken, whole)
        gpus = self._pick_gpus(wanted.num_gpus)
        cpus = self._free_cpus()[: int(cpu)] if cpu == int(cpu) else ()
        grant = Grant(cpus, gpus)
        self.book(owner, wanted, grant)
        return grant

    def book(self, owner: ReplicaId, wanted: Resources, grant: Grant) -> None:
        """Record what ``owner`` holds already, even if the same is reserved for others."""
        gpu_share = wanted.num_gpus if 0 < wanted.num_gpus < 1 else 1.0
        cpu = wanted.num_cpus or 0.0
        self._shares[owner] = _Share(grant, cpu, gpu_share, dict(wanted.resources))

    def grant_of(self, owner: ReplicaId) -> Grant:
        """Return what ``owner`` holds; an empty grant if it is unknown."""
        share = self._shares.get(owner)
        return Grant() if share is None else share.grant

    def release(self, owner: ReplicaId) -> None:
        """Take back what ``owner`` has; unknown ones are ignored."""
        self._shares.pop(owner, None)

    def _cpu_left(self) -> float:
        return len(self._cpus) - sum(each.cpu_share for each in self._shares.values())

    def _free_cpus(self) -> tuple[int, ...]:
        pinned = {number for each in self._shares.values() for number in each.grant.cpus}
        return tuple(number for number in self._cpus if number not in pinned)

    def _pick_gpus(self, amount: float) -> tuple[str, ...]:
        if amount == 0:
            return ()
        left = {name: self._gpu_left(name) for name in self._gpus}
        if amount < 1:
            # The fullest device that still has room, so that whole ones stay whole.
            fitting = [name for name in self._gpus if left[name] + _TOLERANCE >= amount]
            self._check("num_gpus", amount, max(left.values(), default=0.0), len(self._gpus))
            return (min(fitting, key=lambda name: left[name]),)
        if amount != int(amount):
            raise ResourcesUnavailable(
                f"num_gpus is {amount:g}; a replica gets a share of one device or whole devices"
            )
        whole = tuple(name for name in self._gpus if left[name] + _TOLERANCE >= 1)
        self._check("num_gpus", amount, len(whole), len(self._gpus))
        return whole[: int(amount)]

    def _gpu_left(self, name: str) -> float:
        return 1.0 - sum(
            each.gpu_share for each in self._shares.values() if name in each.grant.gpus
        )

    def _check(self, name: str, wanted: float, left: float, whole: float) -> None:
        if wanted <= left + _TOLERANCE:
            return
        if wanted > whole + _TOLERANCE:
            has = f"only {whole:g}" if whole else "none"
            raise ResourcesUnavailable(
                f"{name} is {wanted:g}, but this machine has {has}; ask for less, or leave it out"
            )
        text = f"of the {whole:g} of this machine {max(left, 0):g} are not reserved"
        refusal = f"{name} is {wanted:g}, but {text}; ask for less, or end what holds them"
        raise ResourcesTaken(refusal, f"{name}={wanted:g}: {text}")
