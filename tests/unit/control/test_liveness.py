"""Signs of life, in virtual time."""

from pyserve.config.control import LIVENESS_CHECK_PERIOD_S, PING_PERIOD_S, SILENT_AFTER_S
from pyserve.control.reconcile.decide import KillReplica
from pyserve.control.reconcile.start_limits import Waits
from pyserve.control.replicas.sessions import LivenessMonitor
from pyserve.control.report import application_statuses
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.state.mesh import Replica
from pyserve.wire.v1 import control_pb2
from tests.unit.control.world import APPLICATION, World


class Asked:
    """One deployment of one replica, which answers or does not."""

    def __init__(self, **options: float) -> None:
        self.world = World()
        self.world.deploy(Echo={"num_replicas": 1, **options})
        self.world.settle()
        self.world.make_ready()
        self.world.settle()
        self.liveness = LivenessMonitor()

    @property
    def replica(self) -> Replica:
        (found,) = self.world.replicas()
        return found

    def look(self, after_s: float = LIVENESS_CHECK_PERIOD_S) -> bool:
        """Return whether the replica is asked."""
        self.world.now += after_s
        return [self.replica] == list(self.liveness.look(self.world.state, self.world.now))

    def is_asked(self) -> bool:
        """Return whether the replica is asked in the next round of questions."""
        return any(self.look() for _ in range(int(PING_PERIOD_S / LIVENESS_CHECK_PERIOD_S) + 1))

    def answer(self) -> None:
        self.world.state.on_heard(self.replica.id)

    def fall_silent(self) -> None:
        for _ in range(int((PING_PERIOD_S + SILENT_AFTER_S) / LIVENESS_CHECK_PERIOD_S) + 1):
            self.look()

    def texts(self) -> list[str]:
        return [text for _, text in self.world.state.incidents]

    def status(self) -> tuple[str, str]:
        deployment = self._deployment()
        return deployment.state, deployment.replicas[0].state

    def message(self) -> tuple[str, str]:
        deployment = self._deployment()
        return deployment.state, deployment.message.replace("replica Echo", "Echo")

    def _deployment(self) -> control_pb2.DeploymentStatus:
        applications = Applications({APPLICATION: ApplicationInfo("/", "Echo")})
        (found,) = application_statuses(self.world.state, applications, Waits())
        return found.deployments[0]


def test_one_that_answers_is_asked_again_and_nothing_is_said():
    asked = Asked()
    for _ in range(10):
        assert asked.is_asked()
        asked.answer()

    assert [] == asked.texts()
    assert ("HEALTHY", "RUNNING") == asked.status()


def test_one_that_falls_silent_is_told_once_and_asked_no_more_until_it_answers():
    asked = Asked()
    assert asked.is_asked()
    asked.answer()
    assert asked.is_asked()

    asked.fall_silent()
    asked.fall_silent()

    name = asked.replica.id
    silent = f"replica {name} does not answer health checks"
    assert [silent] == asked.texts()
    assert ("UNHEALTHY", "SILENT") == asked.status()
    asked.answer()
    assert [silent, f"replica {name} answers again"] == asked.texts()
    assert ("HEALTHY", "RUNNING") == asked.status()
    assert asked.is_asked()


def test_one_that_stays_silent_for_as_long_as_its_checks_may_take_is_killed():
    asked = Asked(health_check_period_s=2, health_check_timeout_s=3)
    asked.fall_silent()
    asked.world.settle()
    first = asked.replica.id
    assert ("UNHEALTHY", f"0 of 1 replicas serve; {first} does not answer health checks") == (
        asked.message()
    )

    asked_at = asked.replica.asked_at
    assert asked_at is not None
    while asked.replica.id == first and asked.world.now < asked_at + 60:
        asked.look()
        asked.world.settle()

    assert KillReplica(first, "has given no sign of life for 15 s") in asked.world.log
    assert asked_at + 15 == asked.world.now


def test_one_that_answers_late_is_not_killed():
    asked = Asked(health_check_period_s=2, health_check_timeout_s=3)
    first = asked.replica.id
    for _ in range(20):
        asked.fall_silent()
        asked.answer()
        asked.world.settle()

    assert first == asked.replica.id


def test_a_controller_that_was_stopped_kills_nobody():
    asked = Asked(health_check_period_s=2, health_check_timeout_s=3)
    first = asked.replica.id
    asked.fall_silent()
    asked.look(after_s=100)
    asked.world.settle()

    assert first == asked.replica.id


def test_one_that_never_answered_is_silent_too():
    """A process may be stopped as soon as it is ready."""
    asked = Asked()
    asked.fall_silent()

    assert ("UNHEALTHY", "SILENT") == asked.status()


def test_a_controller_that_was_stopped_itself_blames_nobody():
    asked = Asked()
    assert asked.is_asked()
    asked.answer()
    assert asked.is_asked()

    assert asked.look(after_s=100 * SILENT_AFTER_S)
    assert [] == asked.texts()


def test_one_that_has_joined_again_is_asked_anew():
    asked = Asked()
    assert asked.is_asked()
    asked.answer()
    assert asked.is_asked()
    replica = asked.replica
    asked.world.state.on_left(replica.id, now=asked.world.now)
    assert ("UNHEALTHY", "SILENT") == asked.status()
    asked.world.state.on_joined(replica.id, pid=1, place=replica.place)

    assert asked.is_asked()


def test_a_successor_that_has_to_wait_is_announced_with_its_wait():
    asked = Asked()
    for _ in range(3):
        asked.world.die(asked.replica)
        asked.world.settle()
        while not asked.world.replicas():
            asked.world.advance()
        asked.world.make_ready()
        asked.world.settle()

    texts = asked.texts()
    first, second, third = texts[::2]
    assert first.endswith("ended (killed by SIGKILL), starting another")
    assert second.endswith("starting another in 1 s")
    assert third.endswith("starting another in 2 s")
    # Each is announced when it is there.
    returns = [text.partition(" serves, ")[2] for text in texts[1::2]]
    assert [f"{wait_s}.0 s after the one before was lost" for wait_s in (0, 1, 2)] == returns
