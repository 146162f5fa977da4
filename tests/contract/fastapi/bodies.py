"""Bodies: JSON, forms, files, raw, and ones that nobody reads."""

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Body, File, Form, Request, UploadFile
from pydantic import BaseModel, Field

router = APIRouter()


class Tag(BaseModel):
    name: str


class Item(BaseModel):
    name: str
    price: float = Field(gt=0)
    tags: list[Tag] = []
    tax: float | None = None


class Shown(BaseModel):
    name: str
    tax: float | None = None


@router.post("/items", status_code=201)
async def create_item(item: Item) -> Item:
    return item


@router.put("/items/{item_id}", response_model=Shown, response_model_exclude_unset=True)
def replace_item(item_id: int, item: Item) -> Any:
    return {"name": f"{item.name} {item_id}", "price": item.price}


@router.patch("/several")
async def several(item: Item, importance: Annotated[int, Body()], tag: Tag) -> dict[str, Any]:
    return {"item": item, "importance": importance, "tag": tag}


@router.post("/form")
async def read_form(name: Annotated[str, Form()], age: Annotated[int, Form()] = 3) -> list[Any]:
    return [name, age]


@router.post("/files")
async def read_files(
    note: Annotated[str, Form()],
    first: Annotated[bytes, File()],
    others: list[UploadFile],
) -> dict[str, Any]:
    return {
        "note": note,
        "first": first.decode(),
        "others": [
            {
                "name": each.filename,
                "type": each.content_type,
                "sha256": hashlib.sha256(await each.read()).hexdigest(),
            }
            for each in others
        ],
    }


@router.post("/raw")
async def read_raw(request: Request) -> dict[str, Any]:
    body = await request.body()
    return {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}


@router.post("/pieces")
async def read_pieces(request: Request) -> dict[str, Any]:
    digest = hashlib.sha256()
    async for piece in request.stream():
        digest.update(piece)
    return {"sha256": digest.hexdigest()}


@router.post("/unread")
async def leave_unread() -> str:
    return "did not look"


@router.delete("/items/{item_id}", status_code=204)
async def delete_item(item_id: int) -> None:
    return None


done: list[str] = []


@router.post("/background/{name}")
async def do_later(name: str, tasks: BackgroundTasks) -> str:
    tasks.add_task(done.append, name)
    return "later"


@router.get("/background")
async def what_was_done() -> list[str]:
    return done
