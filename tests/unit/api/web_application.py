"""A FastAPI application of a module, whose routes belong to several classes and to none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, WebSocket
from pydantic import BaseModel

import pyserve


class Item(BaseModel):
    name: str
    price: float = 1.0


async def doubled(number: int = 1) -> int:
    return 2 * number


app = FastAPI()
router = APIRouter(prefix="/routed")
plain_router = APIRouter(prefix="/late")


@app.get("/function")
async def function() -> str:
    return "no class"


class Base:
    def __init__(self, name: str = "base") -> None:
        self.name = name

    @app.get("/inherited")
    async def inherited(self) -> str:
        return f"inherited by {self.name}"

    @app.get("/overridden")
    async def overridden(self) -> str:
        return "not me"


@pyserve.ingress(app)
class Greeter(Base):
    @app.get("/greet")
    async def greet(
        self, who: Annotated[str, Query(min_length=2)], number: Annotated[int, Depends(doubled)]
    ) -> dict[str, Any]:
        """Greet somebody."""
        return {"from": self.name, "to": who, "number": number}

    @app.post("/items/{item_id}", status_code=201)
    def create(self, item_id: int, item: Item) -> Item:
        return Item(name=f"{self.name} {item_id} {item.name}", price=item.price)

    async def overridden(self) -> str:
        return f"{self.name} overrides"

    @app.get("/stream")
    async def stream(self, count: int = 2) -> AsyncIterator[Item]:
        for number in range(count):
            yield Item(name=f"{self.name} {number}")

    @app.websocket("/ws/{room}")
    async def talk(self, websocket: WebSocket, room: str) -> None:
        await websocket.accept()
        await websocket.send_text(f"{self.name} in {room}")
        await websocket.close()

    @router.get("/in-a-router")
    async def in_a_router(self) -> str:
        return self.name

    @app.get("/static")
    @staticmethod
    async def needs_no_instance() -> str:
        return "static"

    async def called_by_handles(self, number: int) -> int:
        return number + 1


@pyserve.ingress(app)
class Other:
    @app.get("/other")
    async def other(self) -> str:
        return type(self).__name__


app.include_router(router, prefix="/v1")


@plain_router.get("/function")
async def late_function() -> str:
    return "late"


app.include_router(plain_router)


@app.get("/{rest:path}")
async def catch_all(rest: str) -> str:
    return f"nothing at {rest}"
