"""Path, query, header and cookie parameters, and dependencies."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Cookie, Depends, Header, HTTPException, Path, Query, Response
from fastapi.security import HTTPBasic, HTTPBasicCredentials, OAuth2PasswordBearer

router = APIRouter()

LONG_PAST = datetime(2000, 1, 1, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@router.get("/items/{item_id}")
async def read_item(
    item_id: Annotated[int, Path(ge=1)], q: str | None = None, short: bool = False
) -> dict[str, Any]:
    return {"item_id": item_id, "q": q, "short": short}


@router.get("/colours/{colour}")
def read_colour(colour: Colour) -> Colour:
    return colour


@router.get("/files/{file_path:path}")
async def read_file(file_path: str) -> str:
    return file_path


@router.get("/when/{moment}/{number}")
async def read_moment(moment: datetime, number: UUID) -> dict[str, str]:
    return {"moment": moment.isoformat(), "number": str(number)}


@router.get("/queries")
async def read_queries(
    tags: Annotated[list[str], Query(alias="tag", max_length=3)] = [],  # noqa: B006  # FastAPI's
    limit: Annotated[int, Query(gt=0, le=100)] = 10,
    pattern: Annotated[str | None, Query(pattern="^a+$")] = None,
) -> dict[str, Any]:
    return {"tags": tags, "limit": limit, "pattern": pattern}


@router.get("/header-values")
async def read_headers(
    user_agent: Annotated[str | None, Header()] = None,
    x_token: Annotated[list[str] | None, Header()] = None,
) -> dict[str, Any]:
    return {"user_agent": user_agent, "x_token": x_token}


@router.get("/cookies")
async def read_cookies(
    response: Response, session: Annotated[str | None, Cookie()] = None
) -> dict[str, Any]:
    response.set_cookie("session", "new", httponly=True, max_age=60)
    response.set_cookie("theme", "dark", path="/", samesite="strict")
    # What `delete_cookie` sends, but for its date: that is the second of each answer.
    response.set_cookie("old", "", max_age=0, expires=LONG_PAST)
    return {"session": session}


async def resource() -> AsyncIterator[dict[str, str]]:
    held = {"state": "open"}
    try:
        yield held
    finally:
        held["state"] = "closed"


def numbered(n: int = 1) -> Iterator[int]:
    yield n * 2


class Paging:
    def __init__(self, skip: int = 0, limit: int = 5) -> None:
        self.skip, self.limit = skip, limit


@router.get("/dependencies")
async def use_dependencies(
    held: Annotated[dict[str, str], Depends(resource)],
    number: Annotated[int, Depends(numbered)],
    paging: Annotated[Paging, Depends()],
) -> dict[str, Any]:
    return {"held": held["state"], "number": number, "skip": paging.skip, "limit": paging.limit}


async def guard(x_key: Annotated[str, Header()]) -> None:
    if x_key != "right":
        raise HTTPException(403, "wrong key", headers={"x-why": "key"})


@router.get("/guarded", dependencies=[Depends(guard)])
async def guarded() -> str:
    return "in"


basic = HTTPBasic()
oauth2 = OAuth2PasswordBearer(tokenUrl="token")


@router.get("/basic")
def who(credentials: Annotated[HTTPBasicCredentials, Depends(basic)]) -> str:
    return credentials.username


@router.get("/bearer")
async def bearer(token: Annotated[str, Depends(oauth2)]) -> str:
    return token
