"""Simulated engines for clients that others have written."""

from __future__ import annotations

import pyserve
from pyserve.llm import LlamaCpp, SimulatedEngine
from pyserve.llm.simulated.scheduler import Rates
from tests.contract.llm.own_doors import SETTINGS

RUNNING_MAX = 2
CHUNK = 64
STEP_S = 0.004

simulated = (
    pyserve.deployment(SimulatedEngine)
    .options(name="simulated", max_ongoing_requests=1000)
    .bind(rates=Rates(step_s=0.001, step_s_per_request=0.0, prefill_tokens_per_s=1e6), tokens=16)
)

# So slow and so narrow that requests can be caught while they wait, are read, and are answered.
narrow = (
    pyserve.deployment(SimulatedEngine)
    .options(name="narrow", max_ongoing_requests=64)
    .bind(
        rates=Rates(
            step_s=STEP_S,
            step_s_per_request=0.0,
            prefill_tokens_per_s=CHUNK / STEP_S,
            prefill_chunk=CHUNK,
            max_running=RUNNING_MAX,
        ),
        tokens=10_000,
    )
)

small = pyserve.deployment(LlamaCpp).options(name="small", max_ongoing_requests=64).bind(**SETTINGS)
