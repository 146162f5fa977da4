"""The model of all forms: how long a step takes. It imports nothing of pyserve."""

from __future__ import annotations

RUNNING = 32
# What a step takes, and what each state adds to that: as a model whose weights are read once.
STEP_S = 0.005
STATE_S = 0.00002


def step_s(states: int) -> float:
    """Return how long a step of so many states takes."""
    return STEP_S + STATE_S * states
