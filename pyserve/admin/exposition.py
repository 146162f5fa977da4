"""Writes metric families in the formats of Prometheus and OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Exemplar

from pyserve.observe.metrics import Family

# Longer than any usual header; a client may still send this much.
_ACCEPT_LENGTH_MAX = 1024


def write(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """Return the text and its content type, for a request with this ``Accept`` header.

    OpenMetrics, with exemplars, where the client takes it; else Prometheus's own format.
    """
    encode, content_type = _encoder(accept)
    text: bytes = encode(_Families(families))
    return text, content_type


def content_type_of(accept: str) -> str:
    """Return the content type that ``write`` chooses; of the few that there are."""
    return _encoder(accept)[1]


def _encoder(accept: str) -> tuple[Callable[[Any], bytes], str]:
    try:
        return choose_encoder(accept[:_ACCEPT_LENGTH_MAX])
    except (TypeError, ValueError):
        # A version that is not a number, "version=1.x": such a header may be left alone (RFC 9110,
        # 12.1).
        return choose_encoder("")


class _Families:
    """The part of a prometheus_client registry that its encoders use."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._families)


def _metric(family: Family) -> Metric:
    metric = Metric(family.name, family.text, family.kind)
    for sample in family.samples:
        exemplar = None
        if sample.exemplar is not None:
            trace_id, value, at = sample.exemplar
            exemplar = Exemplar({"trace_id": trace_id}, value, at)
        metric.add_sample(
            family.name + sample.suffix, dict(sample.labels), sample.value, exemplar=exemplar
        )
    return metric
