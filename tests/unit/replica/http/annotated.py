"""Handlers whose annotations are texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decimal import Decimal as Money

    from starlette.requests import Request


@dataclass
class Item:
    name: str
    price: float
    tags: list[str] = field(default_factory=list)


@dataclass
class Order:
    items: list[Item]
    parent: Order | None = None


async def by_request(request: Request) -> Any:
    return [type(request).__name__, request.method, await request.json()]


async def by_order(order: Order) -> Any:
    return [order, type(order.items[0]).__name__]


async def by_missing_name(money: Money) -> Any:
    return money
