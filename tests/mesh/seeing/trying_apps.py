"""Applications of each kind, to be called from the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import FastAPI, File, Form, UploadFile
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

import pyserve
from services.echo.service import Echo

api = FastAPI()
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154"
    "789c63606060000000040001f61738550000000049454e44ae426082"
)


class Order(BaseModel):
    item: str
    count: int = 1


@dataclass
class House:
    rooms: int
    area_m2: float = 50.0


@pyserve.deployment
@pyserve.ingress(api)
class Shop:
    def __init__(self) -> None:
        self.left = 0

    @api.get("/price/{item}", summary="What it costs")
    async def price(self, item: str, count: int = 1) -> dict[str, str]:
        return {"item": item, "price": f"{3 * count} EUR"}

    @api.post("/orders", status_code=201)
    async def order(self, order: Order) -> Order:
        return order

    @api.post("/files")
    async def files(
        self, file: Annotated[UploadFile, File()], name: Annotated[str, Form()]
    ) -> dict[str, object]:
        return {"name": name, "bytes": len(await file.read())}

    @api.get("/pixel")
    async def pixel(self) -> Response:
        return Response(PIXEL, media_type="image/png")

    @api.get("/ticks")
    async def ticks(self) -> StreamingResponse:
        return StreamingResponse(self._ticks(), media_type="text/event-stream")

    @api.get("/left")
    async def how_many_left(self) -> int:
        return self.left

    async def _ticks(self) -> AsyncIterator[str]:
        try:
            for number in range(10**6):
                yield f"data: {number}\n\n"
                await asyncio.sleep(0.01)
        finally:
            self.left += 1


@pyserve.deployment
class Houses:
    async def __call__(self, house: House) -> dict[str, float]:
        """Say what a house costs."""
        return {"price": 10_000 * house.rooms + 2_000 * house.area_m2}


shop = Shop.bind()
houses = Houses.bind()
echo = Echo.bind()
PREFIXES = {"shop": "/shop", "houses": "/houses", "echo": "/echo"}
