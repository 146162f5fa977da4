"""A controller that ends at any moment, and the next one with what was written; virtual time."""

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.config import DeploymentOptions
from pyserve.config.control import CALLERS_END_TIMEOUT_S, REJOIN_TIMEOUT_S
from pyserve.control.health import observe
from pyserve.control.reconcile.decide import CompleteVersion, KillReplica, StartReplica, StopReplica
from pyserve.control.reconcile.rollout import Former, Reconfiguring
from pyserve.control.recording import Memory, records_of
from pyserve.control.recovery import Hold, restore
from pyserve.control.replicas.identity import drop_unused, new_replica
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.state.history import Condition
from pyserve.control.state.mesh import Phase, Version
from pyserve.control.state.replica import EXTERNAL_SLOT, Place, ReplicaIndex
from pyserve.control.state.specs import Run
from pyserve.control.store import Changes, MemoryStore, SqliteStore, changes_between
from pyserve.control.store.records import Table, encode
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import mesh_pb2
from tests.unit.control.test_reconcile_properties import EVENTS, apply_event
from tests.unit.control.world import APPLICATION, World, key

# Unix time, when the clock of the worlds was at zero.
OFFSET = 1_000_000.0
pytestmark = pytest.mark.parity("G-66")


def spec_of(version):
    calls = [
        mesh_pb2.DeploymentKey(application=each.application, name=each.deployment)
        for each in version.calls
    ]
    return mesh_pb2.DeploymentSpec(name="Echo", options_json=version.options.to_json(), calls=calls)


def encoded(records):
    return {key: encode(record) for key, record in records.items()}


class Controller:
    """A world, what else a controller has, and a store that gets what changes."""

    def __init__(self, store, world=None):
        self.world = world or World()
        self.store = store
        self.applications = Applications({APPLICATION: ApplicationInfo("/", "Echo")})
        self.reconfiguring = Reconfiguring()
        self.specs = {}
        self.memos = {}
        self.hold = Hold()
        self.written = store.load()
        self.made = {}

    def records(self):
        for desired in self.world.state.deployments.values():
            for version in filter(None, (desired.target, desired.fallback)):
                self.specs.setdefault(version.id, spec_of(version))
        memory = Memory(
            self.world.state, self.applications, self.reconfiguring, self.specs, self.memos
        )
        drop_unused(memory.state, memory.specs)
        return records_of(memory, deploys=7, clock_offset=OFFSET)

    def write(self):
        records = self.records()
        self.store.write(changes_between(self.written, records))
        self.written = records

    def next(self, *, later_s=0.0):
        """Return the controller after this one's end."""
        world = World()
        world.now = self.world.now + later_s
        world._ids, world._versions = self.world._ids, self.world._versions
        restored = restore(self.store.load(), now=world.now, clock_offset=OFFSET)
        world.state = restored.state
        after = Controller(self.store, world)
        after.applications, after.reconfiguring = restored.applications, restored.reconfiguring
        after.specs, after.memos = restored.specs, restored.memos
        after.deploys = restored.deploys
        after.hold.begin(restored, world.now)
        return after

    def settle(self):
        """Do what is allowed while replicas are waited for."""
        said = []
        self.hold.look(self.world.state, self.world.now)
        while actions := self.hold.allowed(self.world.wanted(), self.world.state):
            for action in actions:
                self.world._carry_out(action)
            said += actions
        return said

    def rejoin(self, *replicas):
        for replica in replicas or list(self.world.state.replicas.values()):
            self.world.state.on_joined(replica.id, pid=1, place=replica.place)


def serving(count=2, **options):
    """Return a controller of which so many replicas serve, and are written."""
    controller = Controller(MemoryStore())
    controller.world.deploy(Echo={"num_replicas": count, **options})
    controller.world.settle()
    controller.world.make_ready()
    controller.world.settle()
    controller.write()
    return controller


@given(st.integers(1, 4), EVENTS)
def test_what_is_loaded_is_what_was_written_in_every_history(tmp_path_factory, wanted, events):
    path = tmp_path_factory.mktemp("s") / "s.sqlite3"
    with contextlib.closing(SqliteStore(path)) as store:
        before = Controller(store)
        before.world.deploy(Echo=wanted)
        for kind, number in events:
            apply_event(before.world, kind, number)
            before.world.settle()
            before.write()
        before.write()

        after = before.next()

        assert encoded(store.load()) == encoded(after.records())
        assert before.world.state.replicas.keys() == after.world.state.replicas.keys()
        assert 7 == after.deploys


@given(st.integers(1, 4), EVENTS, st.integers(0, 40))
def test_the_next_one_comes_to_what_is_wanted_whenever_it_begins(wanted, events, cut):
    controller = Controller(MemoryStore())
    version = controller.world.deploy(Echo=wanted)["Echo"]
    for kind, number in events[:cut]:
        apply_event(controller.world, kind, number)
        controller.world.settle()
        controller.write()
    controller.write()
    controller = controller.next()
    controller.rejoin()
    controller.settle()

    version = controller.world.deploy(Echo=wanted)["Echo"]
    for _ in range(50):
        controller.settle()
        controller.world.make_ready()
        controller.settle()
        controller.world.end_stopped()
        if controller.world.advance() is None:
            break

    assert [version] * wanted == [item.version for item in controller.world.serving()]
    assert wanted == len(controller.world.state.replicas)


def test_nothing_is_done_while_those_that_serve_may_come_back():
    before = serving(2)

    after = before.next()

    assert [] == after.settle()
    assert 2 == len(after.world.replicas(phase=Phase.RUNNING))
    assert [] == after.world.serving()
    first, second = after.world.replicas()
    after.rejoin(first)
    assert [] == after.settle()
    assert after.hold.awaited
    after.rejoin(second)
    assert [] == after.settle()
    assert not after.hold.awaited
    assert 2 == len(after.world.serving())


def test_those_that_do_not_come_back_in_time_are_replaced():
    after = serving(2).next()
    first, second = after.world.replicas()
    after.rejoin(first)
    after.world.now += REJOIN_TIMEOUT_S - 0.1
    assert [] == after.settle()

    assert pytest.approx(after.world.now + 0.1) == after.hold.next_wakeup()
    after.world.now += 0.2
    kill, start = after.settle()

    assert KillReplica(second.id, "left and did not join again") == kill
    assert isinstance(start, StartReplica)
    assert second.slot == start.slot


def test_those_whose_process_has_ended_are_not_waited_for():
    after = serving(2).next()
    first, second = after.world.replicas()
    after.world.state.on_exited(second.id, summary="ended", now=after.world.now)
    assert [] == after.settle()
    after.rejoin(first)
    (start,) = after.settle()
    assert second.slot == start.slot


def test_another_application_does_not_wait():
    after = serving(1).next()
    other = DeploymentKey(ApplicationName("other"), DeploymentName("Echo"))
    version = Version("v9", DeploymentOptions())
    after.world.state.on_deploy(other.application, {other: version})

    assert [StartReplica(other, "v9", 0)] == after.settle()
    assert after.hold.awaited


def test_a_deploy_that_was_under_way_goes_on_and_the_older_version_serves_until_then():
    before = serving(2)
    old = [replica.id for replica in before.world.serving()]
    version = before.world.deploy(Echo=2)["Echo"]
    before.world.settle()
    (started,) = [item for item in before.world.replicas() if item.phase is Phase.STARTING]
    before.write()

    after = before.next()
    assert [] == after.settle()
    after.rejoin()
    after.settle()

    assert old == [replica.id for replica in after.world.serving()]
    assert [started.id] == [item.id for item in after.world.replicas(phase=Phase.STARTING)]
    for _ in range(4):
        after.world.make_ready()
        after.settle()
        after.world.end_stopped()
        after.settle()
    assert [version] * 2 == [item.version for item in after.world.serving()]
    assert started.id in {item.id for item in after.world.serving()}
    assert CompleteVersion(key()) not in after.world.wanted()
    assert after.world.state.deployments[key()].target.completed


def test_a_version_that_has_failed_stays_so_with_its_reason():
    before = serving(1)
    before.world.deploy(Echo=1)
    before.world.settle()
    (starting,) = before.world.replicas(phase=Phase.STARTING)
    before.world.fail(starting)
    before.world.settle()
    before.write()
    failure = before.world.state.deployments[key()].failure
    assert failure is not None

    after = before.next()
    after.rejoin()

    assert [] == after.settle()
    assert failure == after.world.state.deployments[key()].failure


def test_the_delay_before_the_next_start_goes_on():
    before = serving(1)
    before.world.die(*before.world.replicas())
    before.world.settle()
    before.world.make_ready()
    before.world.die(*before.world.replicas())
    before.write()

    assert [] == before.next(later_s=0.9).settle()
    assert [StartReplica] == [type(each) for each in before.next(later_s=1.1).settle()]


def draining(**options):
    """Return a controller of which one replica has begun to drain."""
    before = serving(1, graceful_shutdown_timeout_s=5, **options)
    before.world.state.on_delete(APPLICATION)
    before.world.settle()
    before.write()
    return before


def test_a_replica_that_drained_is_ended_when_it_would_have_been():
    before = draining()
    (replica,) = before.world.replicas(phase=Phase.STOPPING)

    after = before.next(later_s=3.0)
    (found,) = after.world.replicas(phase=Phase.STOPPING)

    assert [] == after.settle()
    assert (replica.stopping_at, replica.kill_at) == (found.stopping_at, found.kill_at)
    assert 4.0 == found.kill_at - after.world.now
    after.world.now = found.kill_at
    assert KillReplica(found.id, "has used up its grace") in after.settle()


def test_one_whose_grace_passed_while_nobody_looked_is_ended_at_once():
    after = draining().next(later_s=60.0)
    (replica,) = after.world.replicas()
    assert KillReplica(replica.id, "has used up its grace") in after.settle()


def test_a_clock_that_was_set_back_gives_no_more_than_the_whole_grace_again():
    after = draining().next(later_s=-500.0)
    (replica,) = after.world.replicas()
    assert 7.0 == replica.kill_at - after.world.now


def test_one_that_drains_in_a_file_of_an_older_release_gets_its_grace_again():
    before = draining()
    for key_, record in before.store.load().items():
        if key_[0] is Table.REPLICAS:
            older = dataclasses.replace(record, kill_at=None, stopping_at=None)
            before.store.write(Changes({key_: older}))

    after = before.next(later_s=3.0)

    (replica,) = after.world.replicas()
    assert 7.0 == replica.kill_at - after.world.now
    assert after.world.now == replica.stopping_at


def calling():
    """Return a controller of which a Front serves that calls a Model."""
    before = Controller(MemoryStore())
    before.world.calls = {"Front": {"Model"}}
    before.world.deploy(Front={"graceful_shutdown_timeout_s": 60}, Model=1)
    before.world.settle()
    before.world.make_ready(*before.world.state.replicas.values())
    before.world.settle()
    before.write()
    return before


def test_those_that_are_called_wait_for_their_callers_as_long_as_before():
    before = calling()
    before.world.state.on_delete(APPLICATION)
    before.world.settle()
    (front,) = before.world.replicas("Front")
    assert front.stopping_at is not None
    before.write()

    after = before.next(later_s=10.0)
    after.rejoin()

    assert [] == after.settle()
    (front,) = after.world.replicas("Front")
    assert {key("Model")} == front.calls
    after.world.now += CALLERS_END_TIMEOUT_S - 10.1
    assert StopReplica not in map(type, after.settle())
    after.world.now += 0.2
    assert StopReplica in map(type, after.settle())


def test_the_end_of_a_mesh_comes_when_it_was_said():
    before = calling()
    before.world.state.on_delete(APPLICATION, ends_by=before.world.now + 5.0)
    before.world.settle()
    before.write()

    after = before.next(later_s=4.0)

    assert after.world.now + 1.0 == after.world.state.deployments[key("Model")].ends_by


def observed(controller, now):
    observe(controller.world.state, {}, now)
    return {str(of): each for of, each in controller.world.state.conditions.items()}


def test_since_when_everything_is_as_it_is_stays():
    before = serving(2)
    said = observed(before, 50.0)
    before.write()

    after = before.next(later_s=5.0)
    after.settle()
    first, second = after.world.replicas()
    after.rejoin(first)
    after.settle()
    assert said == observed(after, 60.0), "half of the replicas are waited for"
    after.rejoin(second)
    after.settle()

    assert said == observed(after, 70.0)
    assert {"shop": 50.0, "shop/Echo": 50.0} == {of: each.since for of, each in said.items()}


def test_what_has_changed_meanwhile_is_so_since_nobody_is_waited_for():
    before = serving(2)
    observed(before, 50.0)
    before.write()

    after = before.next(later_s=5.0)
    after.settle()
    observed(after, 60.0)
    after.world.now = after.hold.until
    after.settle()

    assert Condition("UNHEALTHY", 70.0, "HEALTHY") == observed(after, 70.0)["shop/Echo"]


def test_a_replica_that_others_started_is_waited_for_and_says_itself_what_it_is():
    before = serving(1)
    target = before.world.state.deployments[key()].target
    external = new_replica(key(), target, EXTERNAL_SLOT, 0.0, ReplicaIndex(), name="Echo#other")
    before.world.state.on_external(external)
    before.world.make_ready(external)
    before.write()

    after = before.next()
    after.rejoin()
    after.settle()
    assert [external.id] == list(after.hold.awaited)
    assert external.id not in after.world.state.replicas
    after.world.state.on_external(external)
    after.rejoin(external)
    after.settle()
    assert not after.hold.awaited


def test_what_replicas_had_before_a_change_of_their_configuration_is_kept():
    before = serving(1, user_config={"a": 1})
    target = before.world.state.deployments[key()].target
    former = Former(target.id, target.options, spec_of(target))
    before.reconfiguring.former[APPLICATION] = {key(): former}
    before.write()

    after = before.next()

    assert {APPLICATION: {key(): former}} == after.reconfiguring.former


def test_applications_keep_their_order_and_what_was_before_a_deploy():
    before = serving(1)
    former = ApplicationInfo("/old", "Echo", run=Run("r", 7))
    infos = {
        name: ApplicationInfo("/", "Echo", previous=former, deployed_at=1.5) for name in ("b", "a")
    }
    before.applications.infos = infos
    before.write()

    after = before.next()

    assert list(infos.items()) == list(after.applications.infos.items())


def test_where_a_replica_is_and_its_number_are_known_before_it_says_them():
    before = serving(1)
    (replica,) = before.world.replicas()
    replica.place = Place("n", "z", "127.0.0.1:1", "/run/r.sock")
    replica.metadata_json, replica.config = '{"a": 1}', 3
    before.memos[replica.id] = "process 7"
    before.write()

    after = before.next(later_s=3.0)

    (found,) = after.world.replicas()
    assert replica.place == found.place
    assert (replica.metadata_json, 3) == (found.metadata_json, found.config)
    assert (replica.created_at, replica.ready_at) == (found.created_at, found.ready_at)
    assert {replica.id: "process 7"} == after.memos
