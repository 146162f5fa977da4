"""Sums up pairs of runs: medians, spreads, and ratios pair by pair. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.measure import GENERATOR_SHARE_MAX, METRICS, Run
from benchmarks.workloads import Workload


@dataclass(frozen=True)
class Spread:
    """A median and what lies around it."""

    median: float
    lower_quartile: float
    upper_quartile: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Sum up at least one value; quartiles are the inclusive ones."""
        if len(values) == 1:
            lower, upper = values[0], values[0]
        else:
            lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(statistics.median(values), lower, upper, min(values), max(values))


@dataclass(frozen=True)
class Pair:
    """Two runs of one workload, one right after the other."""

    ours: Run
    baseline: Run


@dataclass(frozen=True)
class Comparison:
    """What all pairs of one workload say.

    Attributes:
        workload: What was run.
        pairs: The runs, oldest first.
        ours: Spread of each metric.
        baseline: Spread of each metric.
        ratios: Spread of ours / baseline of each metric, taken pair by pair.
    """

    workload: Workload
    pairs: tuple[Pair, ...]
    ours: dict[str, Spread]
    baseline: dict[str, Spread]
    ratios: dict[str, Spread]

    @property
    def target_ratio(self) -> Spread:
        """The ratio that the target bounds."""
        return self.ratios[self.workload.target.metric]

    @property
    def target_is_met(self) -> bool:
        """Whether the median is good enough and every answer was right."""
        return self.workload.target.is_met(self.target_ratio.median) and not any(
            run.errors for pair in self.pairs for run in (pair.ours, pair.baseline)
        )

    def warnings(self, *, separate_cpus: bool) -> list[str]:
        """Return what a reader must know before believing the figures."""
        runs = [run for pair in self.pairs for run in (pair.ours, pair.baseline)]
        found = []
        if not separate_cpus:
            found.append("generator and server shared a CPU: the figures compare, no more")
        busiest = max(run.generator_share for run in runs)
        if busiest > GENERATOR_SHARE_MAX:
            found.append(f"the generator used {busiest:.0%} of its core: it may set the pace")
        if wrong := sum(sum(run.errors.values()) for run in runs):
            names = sorted({name for run in runs for name in run.errors})
            found.append(f"{wrong} wrong answers: {', '.join(names)}")
        return found

    def as_json(self, *, separate_cpus: bool) -> dict[str, object]:
        """Return everything as plain data."""
        target = self.workload.target
        return {
            "name": self.workload.name,
            "title": self.workload.title,
            "arguments": list(self.workload.arguments),
            "ours": {name: asdict(spread) for name, spread in self.ours.items()},
            "baseline": {name: asdict(spread) for name, spread in self.baseline.items()},
            "ratios": {name: asdict(spread) for name, spread in self.ratios.items()},
            "target": {**asdict(target), "met": self.target_is_met},
            "warnings": self.warnings(separate_cpus=separate_cpus),
            "pairs": [asdict(pair) for pair in self.pairs],
        }


def compare(workload: Workload, pairs: Sequence[Pair]) -> Comparison:
    """Sum up at least one pair."""

    def spreads(runs: Sequence[Run]) -> dict[str, Spread]:
        return {name: Spread.of([run.metrics[name] for run in runs]) for name in METRICS}

    ratios = {
        name: Spread.of(
            [_ratio(pair.ours.metrics[name], pair.baseline.metrics[name]) for pair in pairs]
        )
        for name in METRICS
    }
    return Comparison(
        workload=workload,
        pairs=tuple(pairs),
        ours=spreads([pair.ours for pair in pairs]),
        baseline=spreads([pair.baseline for pair in pairs]),
        ratios=ratios,
    )


def _ratio(ours: float, baseline: float) -> float:
    return ours / baseline if baseline else float("inf")
