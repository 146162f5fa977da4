"""What a replica tells the controller of a continuously batched class: costs and values."""

from __future__ import annotations

import time

from pyserve.stepping.decorator import find_driver
from pyserve.stepping.entries import Load
from pyserve.stepping.options import ContinuousOptions
from pyserve.wire.v1 import mesh_pb2


def step_load(instance: object) -> mesh_pb2.StepLoad | None:
    """Return the times of an instance's values; ``None`` before its first request."""
    driver = find_driver(instance)
    if driver is None:
        return None
    first, further = driver.measures.first_values, driver.measures.next_values
    unanswered, unanswered_s = driver.unanswered.held(time.monotonic())
    return mesh_pb2.StepLoad(
        first_values=sum(first.counts),
        first_value_s=first.sum,
        next_values=sum(further.counts),
        next_value_s=further.sum,
        unanswered=unanswered,
        unanswered_s=unanswered_s,
        fullness=fullness(driver.load(), driver.options),
    )


def step_costs(instance: object) -> mesh_pb2.StepCosts | None:
    """Return what an instance's requests cost; ``None`` before its first request."""
    driver = find_driver(instance)
    if driver is None:
        return None
    load = driver.load()
    return mesh_pb2.StepCosts(
        running=load.used, waiting=load.waiting_cost, budget=driver.options.budget or 0.0
    )


def fullness(load: Load, options: ContinuousOptions) -> float:
    """Return how much of what a replica can do at most it does, and what waits beside that.

    With places or budget for twice the requests, it can do less than twice as much: steps that
    more requests share take longer. In front of an engine that batches by itself nothing is known
    of that, and only places and budget count.
    """
    places, budget = options.max_running, options.budget
    held, waiting = load.running / places, load.waiting / places
    if budget:
        held, waiting = max(held, load.used / budget), max(waiting, load.waiting_cost / budget)
    if not held or not load.running or not load.step_s:
        return held + waiting
    most = min(places, load.running / held)
    each_s = (load.step_most_s - load.step_least_s) / max(1, places - 1)
    full_s = load.step_least_s + each_s * max(0.0, most - 1)
    # As many in the same time as in a step of all that there is room for: that is full.
    return min(1.0, held * max(1.0, full_s / load.step_s)) + waiting
