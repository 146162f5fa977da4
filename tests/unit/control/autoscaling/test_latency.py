"""The policy ``latency`` on virtual time: what a target takes, what a backlog, and for how long."""

from typing import Any

import pytest

from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.latency import Fleet, LatencyPolicy, servers_for
from pyserve.control.autoscaling.signals import Signals
from pyserve.types import ReplicaId

_TICK_S = 0.1
_SERVICE_S = 0.05
_ONE = ReplicaId("r0")


class Load:
    """Calls at even distances, each of which takes as long as the others."""

    def __init__(self, *, service_s: float = _SERVICE_S, **options: Any) -> None:
        options = {"max_replicas": 50, "target_ongoing_requests": 4, **options}
        if "target_p99_s" not in options:
            options.setdefault("target_wait_s", 0.1)
        self.config = AutoscalingConfig.of("autoscaling_config", options)
        self.signals = Signals(self.config, 0.0)
        self.policy = LatencyPolicy(self.config)
        self.service_s = service_s
        self.now = self.calls = self.busy_s = 0.0

    def run(self, seconds: float, rate: float, *, clump: int = 1) -> None:
        """Let so many calls per second come, several at once if told so."""
        for tick in range(round(seconds / _TICK_S)):
            self.now += _TICK_S
            if tick % clump == 0:
                self.calls += rate * _TICK_S * clump
            self.busy_s += rate * _TICK_S * self.service_s
            self.tell(parked=0)

    def tell(self, parked: int, *, ongoing: int = 0) -> None:
        calls = round(self.calls)
        self.signals.on_router("one", parked=parked, offered=calls, now=self.now)
        self.signals.on_replica(
            _ONE, ongoing=ongoing, calls=calls + ongoing, busy_s=self.busy_s, now=self.now
        )

    def wants(self, running: int = 1, **fleet: Any) -> float:
        ids = [ReplicaId(f"r{index}") for index in range(running)]
        told = Fleet(ids, running, ready_after_s=5.0, **fleet)
        return self.policy.propose(self.signals, told, self.now).number

    def reason(self) -> str:
        return self.policy.propose(self.signals, Fleet([_ONE], 1), self.now).reason


def by_formula(rate: float, limit_s: float = 0.1) -> int:
    servers = servers_for(
        rate * _SERVICE_S, limit_s / _SERVICE_S, variability=1.0, share=0.01, servers_max=500
    )
    return -(-servers // 4)


@pytest.mark.parametrize("rate", [40.0, 400.0, 2000.0])
def test_a_learnt_load_takes_as_many_as_the_formula_says(rate: float):
    load = Load()
    load.run(60, rate)

    assert by_formula(rate) == load.wants(running=by_formula(rate))


def test_what_a_replica_cannot_do_at_once_it_is_not_reckoned_to():
    load = Load()
    load.run(60, 400.0)

    usual = load.wants(running=7)
    assert 4 * usual >= load.wants(running=7, ongoing_max=1) > 2 * usual


def test_bursts_of_the_last_minutes_take_more():
    even, bursty = Load(), Load()
    even.run(120, 400.0)
    bursty.run(120, 400.0, clump=15)

    assert bursty.wants() > even.wants()


def test_calls_that_wait_are_worked_off():
    load = Load()
    load.run(60, 400.0)
    usual = load.wants()
    spare_per_s = usual * 4 / _SERVICE_S - 400.0

    load.tell(parked=3000, ongoing=4)

    # In the time of 1.4 starts, by the spare places and by more replicas.
    more_per_s = 3000 / (1.4 * 5.0) - spare_per_s
    assert more_per_s > 0
    more = more_per_s * _SERVICE_S / 4
    assert usual + more == pytest.approx(load.wants(running=int(usual)), rel=1e-3)
    fleet = Fleet([ReplicaId(f"r{i}") for i in range(int(usual))], int(usual))
    assert "3000 calls that wait" in load.policy.propose(load.signals, fleet, load.now).reason


def test_what_works_off_a_backlog_stays_until_it_is_gone():
    load = Load()
    load.run(60, 400.0)
    usual = load.wants()
    load.tell(parked=3000, ongoing=4)
    most = load.wants(running=int(usual))

    load.tell(parked=60, ongoing=4)
    soon = load.wants(running=int(usual))
    load.tell(parked=20, ongoing=4)

    assert most == soon > usual == load.wants(running=int(usual))


def test_what_works_off_a_backlog_is_reckoned_again_when_it_should_be_gone():
    """Some calls go on to wait for something else: they do not keep the replicas of thousands."""
    load = Load()
    load.run(60, 400.0)
    usual = load.wants()
    load.tell(parked=3000, ongoing=4)
    most = load.wants(running=int(usual))

    numbers = []
    for _ in range(90):
        load.now += 0.1
        load.calls += 40
        load.busy_s += 40 * _SERVICE_S
        load.tell(parked=60, ongoing=4)
        numbers.append(load.wants(running=int(usual)))

    assert most > usual
    assert (most, usual) == (numbers[60], numbers[-1]), "1.4 starts of five seconds"


@pytest.mark.parametrize(("used", "most"), [(0, 1), (1, 1), (2, 1), (3, 3)])
def test_calls_that_wait_bring_few_replicas_while_places_are_free(used: int, most: int):
    """So many times the replicas as places are used for each that is free."""
    load = Load()
    load.run(60, 40.0)

    for _ in range(60):
        load.now += 0.1
        load.tell(parked=3000, ongoing=used)
        number = load.wants()

    assert most == pytest.approx(number, rel=0.01)
    assert "3000 calls that wait until then, although replicas have room" in load.reason()


def test_calls_that_wait_while_all_places_are_used_bring_as_many_as_it_takes():
    load = Load()
    load.run(60, 40.0)

    for _ in range(60):
        load.now += 0.1
        load.tell(parked=3000, ongoing=4)
        number = load.wants()

    assert number > 5.0


def test_what_was_deployed_and_is_not_called_ends():
    load = Load(min_replicas=0)
    assert 9 == load.wants(running=9)

    load.now = 11.0

    assert 0 == load.wants(running=9)


def test_what_a_replica_did_before_teaches_nothing():
    """A controller that starts again, or a scaling that is new, meets replicas of old."""
    load = Load()
    load.calls, load.busy_s = 1e8, 1e8 * 0.005

    load.service_s = 2.0
    load.run(20, 4.0)

    assert 2.0 == pytest.approx(load.signals.service_s(load.now), rel=0.1)


def test_a_change_of_the_calls_does_not_multiply_the_old_rate_by_the_new_time():
    load = Load()
    load.run(60, 400.0)

    load.service_s = 4.0
    numbers = []
    for _ in range(100):
        load.run(0.1, 5.0)
        numbers.append(load.wants(running=6))

    assert max(numbers) <= by_formula(400.0) + by_formula(20.0 / _SERVICE_S)


def test_a_backlog_that_the_spare_places_work_off_takes_no_more():
    load = Load()
    load.run(60, 400.0)
    usual = load.wants()

    load.tell(parked=100, ongoing=4)

    assert usual == load.wants(running=int(usual))


def test_calls_that_wait_no_longer_than_they_may_are_no_backlog():
    load = Load(target_wait_s=5.0)
    load.run(60, 400.0)
    usual = load.wants()
    load.tell(parked=8000, ongoing=4)
    assert load.wants(running=int(usual)) > usual

    load.tell(parked=1900, ongoing=4)

    assert usual == load.wants(running=int(usual))


def test_what_runs_already_is_kept_until_the_load_has_been_seen_for_a_while():
    """After a restart of the controller nothing is known of the load that they are there for."""
    load = Load()
    load.run(5, 40.0)
    assert 9 == load.wants(running=9)

    load.run(15, 40.0)

    assert by_formula(40.0) == load.wants(running=9)


def test_a_load_that_comes_again_is_provided_for_and_not_kept_for():
    load = Load()
    for second in range(1195):
        load.run(1, 1000.0 if second % 300 >= 240 else 100.0)
        load.wants(running=9)
    # The rise comes at 1140 for a minute; the next one at 1440.
    assert by_formula(1000.0) <= load.wants(running=20) <= by_formula(1000.0) + 2
    load.run(30, 100.0)
    assert load.wants(running=20) <= by_formula(100.0) + 1
    load.run(208, 100.0)
    assert by_formula(950.0) <= load.wants(running=9), "seven seconds before it comes"
    assert "its period says" in load.reason()


def test_a_drop_is_believed_after_a_while():
    load = Load()
    load.run(60, 400.0)
    most = load.wants(running=9)

    load.run(5, 40.0)
    soon = load.wants(running=9)
    numbers = []
    for _ in range(60):
        load.run(1, 40.0)
        numbers.append(load.wants(running=9))

    assert (most, by_formula(40.0)) == (soon, numbers[-1])
    assert sorted(numbers, reverse=True) == numbers


def test_a_growth_is_carried_on_to_when_a_new_replica_serves():
    load = Load()
    for second in range(60):
        load.run(1, 100.0 + 20 * second)

    assert load.wants(running=20) >= by_formula(100.0 + 20 * 64)


def test_before_a_call_has_ended_calls_at_once_count():
    load = Load()
    load.signals.on_router("one", parked=12, offered=12, now=0.1)
    load.now = 0.1

    assert 3.0 == load.wants()
    assert "no call has ended yet" in load.reason()


def test_a_target_that_no_number_keeps_says_so():
    load = Load(service_s=0.5, target_p99_s=0.2)
    load.run(60, 40.0)

    assert "no number of replicas keeps" in load.reason()


def test_the_p99_leaves_less_time_to_wait_than_the_wait_alone():
    wait, p99 = Load(target_wait_s=0.1), Load(target_p99_s=0.1)
    wait.run(60, 2000.0)
    p99.run(60, 2000.0)

    assert by_formula(2000.0, 0.05) == p99.wants()
    assert p99.wants() > wait.wants()
