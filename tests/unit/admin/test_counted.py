"""From the metrics of a node to what routers did."""

from __future__ import annotations

from pyserve.admin.api.counted import edges_of
from pyserve.ingress.measures import add_table
from pyserve.observe.metrics import Scrape


def stats(**counts: int) -> dict[str, object]:
    """Return what a native table says of one deployment."""
    names = (
        *("offered", "retries", "retries_refused", "hedges", "ejections", "parked", "sent"),
        *("waiting_for_model", "leased", "completed", "failed", "late", "refusals"),
        *("connect_failures", "refused_by_queue", "expired", "cancelled", "abandoned"),
    )
    return {**dict.fromkeys(names, 0), "in_flight": {"Cart#1": 2}, **counts}


def test_callers_of_one_name_are_one():
    scrape = Scrape({})
    cart = stats(offered=10, failed=3, parked=1)
    add_table(scrape, {"shop/Cart": cart}, caller="ingress", caller_id="1")
    add_table(scrape, {"shop/Cart": cart}, caller="shop/Web", caller_id="Web#1")
    add_table(scrape, {"shop/Cart": cart}, caller="shop/Web", caller_id="Web#2")
    found = edges_of(scrape.families())
    assert {("ingress", "shop/Cart"), ("shop/Web", "shop/Cart")} == set(found)
    web = found["shop/Web", "shop/Cart"]
    assert (20, 6, 2) == (web.counts["calls"], web.counts["failed"], web.parked_now)
    assert {"Cart#1": 4} == web.in_flight


def test_whom_nobody_calls_is_no_edge():
    scrape = Scrape({})
    add_table(scrape, {"shop/Cart": stats()}, caller="ingress", caller_id="1")
    assert {} == edges_of(scrape.families())
