"""Reads the metrics of a mesh as Prometheus does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import wait_until

_TIMEOUT_S = 20.0

Labels = frozenset[tuple[str, str]]


class Page:
    """One scrape.

    Attributes:
        samples: Values by name and labels.
        text: As it came.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                by_labels = self.samples.setdefault(each.name, {})
                labels = frozenset(each.labels.items())
                assert labels not in by_labels, f"{each.name}{each.labels} comes twice"
                by_labels[labels] = each.value

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of the samples that have at least these labels."""
        wanted = labels.items()
        return [
            value for found, value in self.samples.get(name, {}).items() if wanted <= set(found)
        ]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of them."""
        return sum(self.values(name, **labels))

    def labels(self, name: str, label: str) -> set[str]:
        """Return the values of one label."""
        return {dict(found)[label] for found in self.samples.get(name, {}) if label in dict(found)}


def scraped_until(address: str, condition: Callable[[Page], object]) -> Page:
    """Return the first page of which ``condition`` holds.

    A busy process may miss one scrape, and what has ended is counted a moment after its answer.
    """
    pages: list[Page] = []

    def holds() -> object:
        pages.append(scrape(address))
        return condition(pages[-1])

    wait_until(holds, what="the page says so")
    return pages[-1]


def scrape(address: str, headers: Mapping[str, str] | None = None) -> Page:
    """Return what an admin server shows."""
    answer = httpx.get(
        f"http://{address}/metrics", headers=headers, timeout=_TIMEOUT_S, trust_env=False
    )
    answer.raise_for_status()
    return Page(answer.text)
