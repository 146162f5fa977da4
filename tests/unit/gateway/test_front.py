"""What an admin server asks its ingress."""

from __future__ import annotations

from typing import Any

from pyserve.gateway.front import IngressFront
from pyserve.routing.records import Records
from tests.unit.admin.test_calls import Record


class Source:
    """The native side, which hands each record out once."""

    def __init__(self, *waiting: Record) -> None:
        self.waiting = [*waiting]

    def take(self, limit: int) -> list[Record]:
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken


async def test_calls_are_kept_before_anybody_looks_at_them() -> None:
    """Others take records as well: a scrape for its exemplars, an access log."""
    source = Source(Record("bad", kept_for="failed"), Record("late"))
    ingress: Any = type("Ingress", (), {})()
    ingress.records = Records(source)
    seen: list[str] = []
    ingress.records.listen(lambda some: seen.extend(each.request_id for each in some), is_lazy=True)
    front = IngressFront(ingress)

    ingress.records.take_now()

    assert ["bad", "late"] == seen
    front.take_calls()
    kept = front.kept_calls()
    assert ["bad"] == [each.request_id for each in kept.of_kind("failed")]
    assert ["late"] == [each.request_id for each in kept.of_kind("slow")]
