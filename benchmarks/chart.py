"""Draws the ratios of a benchmark with their spread against their targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.comparison import Comparison


def draw(comparisons: Sequence[Comparison], path: Path, *, ours: str, baseline: str) -> None:
    """Write one picture: a bar per workload, least to most as a line, the target as a mark.

    Bars say how many times better, so that longer is better everywhere: a ratio that should be
    small is turned over. The axis is logarithmic.
    """
    import matplotlib

    matplotlib.use("Agg")  # No display is needed, and none is looked for.
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.8 * len(comparisons)))
    positions = range(len(comparisons), 0, -1)
    for position, comparison in zip(positions, comparisons, strict=True):
        median, low, high, target = factors(comparison)
        colour = "tab:green" if comparison.target_is_met else "tab:red"
        axes.barh(position, median, height=0.5, color=colour, alpha=0.7)
        axes.plot([low, high], [position, position], color="black", linewidth=1.5)
        axes.plot([target, target], [position - 0.35, position + 0.35], "--", color="tab:blue")
        axes.annotate(f" {median:.1f}x", (high, position), va="center")
    axes.axvline(1, color="grey", linewidth=0.8)
    labels = [f"{each.workload.title}\n({each.workload.target.text})" for each in comparisons]
    axes.set_yticks(list(positions), labels)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(f"{ours}: times better than {baseline} (median; line: least to most; "
                    "dashed: target)")  # fmt: skip
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def factors(comparison: Comparison) -> tuple[float, float, float, float]:
    """Return median, least, most and target as factors of which more is better."""
    ratio, target = comparison.target_ratio, comparison.workload.target
    if target.at_least:
        return ratio.median, ratio.least, ratio.most, target.bound
    return 1 / ratio.median, 1 / ratio.most, 1 / ratio.least, 1 / target.bound
