"""``pyserve top``: what is drawn of an overview."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pyserve.admin.api.overview import Between, overview
from pyserve.cli.activity import as_table, as_text, duration
from tests.unit.admin.builders import CART, attempts, look, routed, status


def found(state: str = "HEALTHY", replicas: int = 2) -> dict[str, object]:
    """Return an overview of a deployment whose second replica is slow."""
    names = [f"Cart#{number}" for number in range(1, replicas + 1)]
    reply = status(state=state, replicas=names)
    then = routed(Cart_1=attempts(10, 0.005), Cart_2=attempts(10, 0.05))
    now = routed(Cart_1=attempts(30, 0.005), Cart_2=attempts(20, 0.05, failed=1))
    looks = look(0.0, {CART: then}, reply), look(2.0, {CART: now}, reply)
    return overview(Between.of(*looks, None))


def lines(**given: object) -> list[str]:
    return as_text(found(**given)).splitlines()  # type: ignore[arg-type]


def test_the_head_names_the_mesh_and_its_ingress():
    first, second, *_ = lines()
    assert (
        "pyserve 1.2.3, process 4: 1 application, 1 deployment, 2 replicas; rates over 2.0 s"
        == first
    )
    assert "127.0.0.1:8000  2 connections, 3 in flight, 1 waiting" in second


def test_a_deployment_has_its_rates_and_why_it_has_so_many_replicas():
    (line,) = [each for each in lines() if each.startswith("shop/Cart")]
    assert ["shop/Cart", "HEALTHY", "2/2", "4", "1", "15", "3.3%"] == line.split()[:7]
    assert line.endswith("scales to 2: 3 calls wait")


def test_the_outlier_comes_first_and_is_marked():
    first, second = [each for each in lines() if each.startswith("  Cart#")]
    assert first.startswith("  Cart#2")
    assert first.endswith("outlier: 10.0 × as slow as its siblings")
    assert second.startswith("  Cart#1")
    assert "outlier" not in second


def test_columns_stand_below_their_names():
    head, cart = [each for each in lines() if each.startswith((" ", "shop"))][:2]
    assert head.index("calls/s") + len("calls/s") == cart.index(" 15 ") + 3


def test_a_deployment_that_is_not_well_says_why():
    (line,) = [each for each in lines(state="UNHEALTHY") if each.startswith("shop/Cart  ")]
    assert line.endswith("all of its replicas serve")


def test_replicas_that_do_not_fit_are_counted():
    assert any("and 10 more" in each for each in lines(replicas=60))


def test_a_terminal_gets_the_same():
    console = Console(file=io.StringIO(), width=160, color_system=None)
    console.print(as_table(found()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("shop/Cart", "Cart#2", "outlier: 10.0 × as slow", "scales to 2", "connections"):
        assert words in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0.0, "0 µs"),
        (0.00005, "50 µs"),
        (0.0123456, "12.3 ms"),
        (2.5, "2.5 s"),
        (61.0, "61 s"),
    ],
)
def test_times_have_units(value: float | None, expected: str):
    assert expected == duration(value)
