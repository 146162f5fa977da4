"""A FastAPI ingress: paths, queries, bodies, uploads, dependencies, errors and a router."""

from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, File, Header, HTTPException, UploadFile
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

import pyserve as serve

app = FastAPI(title="Houses")
router = APIRouter(prefix="/meta")


class House(BaseModel):
    rooms: int = Field(ge=1)
    area_m2: float


class Price(BaseModel):
    price: float
    currency: str = "EUR"


@router.get("/version")
def version() -> dict[str, str]:
    return {"version": "1"}


def tenant(x_tenant: Annotated[str, Header()] = "nobody") -> str:
    return x_tenant


app.include_router(router)


@serve.deployment
@serve.ingress(app)
class Houses:
    def __init__(self, per_room: float) -> None:
        self.per_room = per_room
        self.names: dict[int, str] = {}

    @app.get("/")
    def root(self) -> str:
        return "Hello from the root!"

    @app.post("/price", response_model=Price)
    async def price(self, house: House) -> Price:
        return Price(price=self.per_room * house.rooms + house.area_m2)

    @app.put("/houses/{number}", status_code=201)
    async def name(
        self, number: int, name: str, who: Annotated[str, Depends(tenant)]
    ) -> dict[str, object]:
        self.names[number] = name
        return {"number": number, "name": name, "tenant": who}

    @app.get("/houses/{number}")
    async def find(self, number: int) -> PlainTextResponse:
        if number not in self.names:
            raise HTTPException(status_code=404, detail=f"no house {number}")
        return PlainTextResponse(self.names[number], headers={"x-number": str(number)})

    @app.post("/photo")
    async def photo(self, photo: Annotated[UploadFile, File()]) -> dict[str, object]:
        return {"name": photo.filename, "size": len(await photo.read())}


houses = Houses.bind(1000.0)
