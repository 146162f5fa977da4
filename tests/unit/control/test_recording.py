"""Writing change by change gives the same record as writing all of it; virtual time."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pyserve.control.reconcile.rollout import Reconfiguring
from pyserve.control.recording import Memory, Recorder, records_of
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.store import Changes, MemoryStore
from pyserve.errors import MeshError
from pyserve.wire.v1 import mesh_pb2
from tests.unit.control.test_reconcile_properties import EVENTS, apply_event
from tests.unit.control.world import APPLICATION, World


class Store(MemoryStore):
    """Counts what is written; may be full, or be removed by somebody."""

    def __init__(self):
        super().__init__()
        self.is_full = self.is_gone = False
        self.written: list[Changes] = []

    def write(self, changes):
        if self.is_full:
            raise MeshError("the disk is full; free some space")
        if self.is_gone:
            self.is_gone = False
            super().write(Changes(removed=frozenset(self.load())))
        self.written.append(changes)
        super().write(changes)

    def is_lost(self):
        return self.is_gone


class Kept:
    """A world of which a store is told."""

    def __init__(self):
        self.world = World()
        self.store = Store()
        self.recorder = Recorder(self.store, 1000.0)
        self.recorder.load()
        self.memory = Memory(
            self.world.state,
            Applications({APPLICATION: ApplicationInfo("/", "Echo")}),
            Reconfiguring(),
            {},
            {},
        )

    def record(self):
        self.recorder.record(self.memory, deploys=1, now=self.world.now)

    def anew(self):
        return records_of(self.memory, deploys=1, clock_offset=1000.0)


@given(EVENTS, st.lists(st.sampled_from(["full", "room", "gone", "admit", ""]), max_size=40))
def test_a_store_that_writes_has_everything(events, mishaps):
    kept = Kept()
    kept.world.deploy(Echo=3)
    numbers = itertools.count()
    for (kind, number), mishap in itertools.zip_longest(events, mishaps, fillvalue=("", 0)):
        match mishap:
            case "full" | "room":
                kept.store.is_full = mishap == "full"
            case "gone":
                kept.store.is_gone = True
            case "admit" if not kept.store.is_full:
                spec = {f"v{next(numbers)}": mesh_pb2.DeploymentSpec(name="Echo")}
                kept.recorder.admit(spec)
                kept.memory.specs.update(spec)
        if kind:
            apply_event(kept.world, kind, number)
        kept.world.settle()
        kept.record()
        if not (kept.store.is_full or kept.store.is_gone):
            assert kept.anew() == kept.store.load()
    kept.store.is_full = False
    # A file that is gone is recreated with the next change.
    kept.world.deploy(Echo=1)
    kept.world.settle()
    kept.record()
    assert kept.anew() == kept.store.load()


def test_one_replica_that_changes_is_one_record():
    kept = Kept()
    kept.world.deploy(Echo=50)
    kept.world.settle()
    kept.world.make_ready()
    kept.world.settle()
    kept.record()
    before = len(kept.store.written)
    kept.world.replicas()[7].cordoned = True

    kept.record()

    (changes,) = kept.store.written[before:]
    assert (1, 0) == (len(changes.put), len(changes.removed))
    kept.record()
    assert before + 1 == len(kept.store.written)
