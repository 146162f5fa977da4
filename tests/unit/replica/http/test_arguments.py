"""What handlers get of a request, by their signatures."""

import gzip
import json
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import pydantic
import pytest
from starlette.requests import Request

from pyserve import _router
from tests.unit.replica.http import annotated
from tests.unit.replica.http.serving import NOTHING, answer_of, serving


def _handler(annotation: Any) -> Any:
    async def handler(value):  # type: ignore[no-untyped-def]
        return {"type": type(value).__name__, "value": value}

    handler.__annotations__["value"] = annotation
    return handler


class Point(TypedDict):
    x: int
    label: NotRequired[str]


class Colour(Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    count: int
    name: str = "unnamed"


class Numbers(pydantic.BaseModel):
    numbers: list[float]


@dataclass
class Positive:
    value: float

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError("value has to be positive")


@pytest.mark.parametrize(
    ("annotation", "body", "kind", "value"),
    [
        (dict, {"a": 1}, "dict", NOTHING),
        (dict[str, Any], {"a": 1}, "dict", NOTHING),
        (list, [1, "b"], "list", NOTHING),
        (list[float], [1, 2.5], "list", NOTHING),
        (str, "text", "str", NOTHING),
        (int, 3, "int", NOTHING),
        (float, 3, "float", 3.0),
        (bool, True, "bool", NOTHING),
        (None | int, None, "NoneType", NOTHING),
        (tuple, [1, 2], "tuple", [1, 2]),
        (set[int], [2, 2], "set", [2]),
        (Literal["a", "b"], "a", "str", NOTHING),
        (Annotated[dict, "a note"], {}, "dict", NOTHING),
        (Point, {"x": 1}, "dict", NOTHING),
        (Positive, {"value": 1}, "Positive", {"value": 1.0}),
        (list[Positive], [{"value": 1}], "list", [{"value": 1.0}]),
        (dict[str, Positive], {"a": {"value": 1}}, "dict", {"a": {"value": 1.0}}),
        (Positive | None, {"value": 1}, "Positive", {"value": 1.0}),
        (Colour, "red", "Colour", NOTHING),
        (Model, {"count": 1}, "Model", {"count": 1, "name": "unnamed"}),
        (list[Model], [{"count": 1}], "list", [{"count": 1, "name": "unnamed"}]),
        (np.ndarray, [[1, 2]], "ndarray", NOTHING),
    ],
)
async def test_a_data_type_gets_the_body(annotation: Any, body: Any, kind: str, value: Any) -> None:
    async with serving(_handler(annotation)) as client:
        answer = await client(json=body)
    expected = body if value is NOTHING else value
    assert {"type": kind, "value": expected} == answer.json()


@pytest.mark.parametrize(
    ("annotation", "body", "place", "text"),
    [
        (dict, [], ["body"], "expected an object, not an array"),
        (list, {}, ["body"], "expected an array, not an object"),
        (int, True, ["body"], "expected an integer, not a boolean"),
        (int, 1.5, ["body"], "expected an integer, not a number"),
        (str, None, ["body"], "expected a string, not null"),
        (Point, {"x": "1"}, ["body", "x"], "expected an integer, not a string"),
        (Point, {}, ["body", "x"], "field required"),
        (Point, {"x": 1, "y": 2}, ["body", "y"], "unknown field"),
        (Point, {"x": 1, "lable": "a"}, ["body", "lable"], "unknown field, did you mean label?"),
        (Positive, {"value": 1, "vlaue": 2}, ["body", "vlaue"], "did you mean value?"),
        (list[Point], [{"x": 1}, {"x": 1, "z": 0}], ["body", 1, "z"], "unknown field"),
        (Positive, {"value": -1}, ["body"], "value has to be positive"),
        (list[Positive], [{"value": 1}, {}], ["body", 1, "value"], "field required"),
        (Colour, "green", ["body"], "expected a value of the enumeration Colour"),
        (Literal["a"], "b", ["body"], "expected one of 'a'"),
        (Model, {"count": "many"}, ["body", "count"], "unable to parse string"),
        (np.ndarray, [[1], [1, 2]], ["body"], "expected an array of numbers"),
        (Positive, {"value": 10**400}, ["body", "value"], "a number that a float can hold"),
        (set, [[1]], ["body"], "expected values that a set can hold"),
    ],
)
async def test_other_data_is_refused_by_place(
    annotation: Any, body: Any, place: list[Any], text: str
) -> None:
    async with serving(_handler(annotation)) as client:
        answer = await client(json.dumps(body).encode())
    assert 422 == answer.status
    (error,) = answer.json()["detail"]
    assert place == error["loc"]
    assert text in error["msg"]


@pytest.mark.parametrize(
    "body",
    [
        b"1180591620717411303424",
        b"18446744073709551616",
        b"-9223372036854775809",
        b"9223372036854775807",
        b'[1, {"n":18446744073709551617 }]',
        b'["12345678901234567890", -18446744073709551617]',
        b"[1e30, 10000000000000000000.5, 10000000000000000000e0, 0.1234567890123456789012]",
        b"1" + b"0" * 400,
    ],
)
async def test_whole_numbers_keep_their_digits(body: bytes) -> None:
    received = []

    async def handler(value: list | int) -> None:  # type: ignore[type-arg]
        received.append(value)

    async with serving(handler) as client:
        assert 200 == (await client(body)).status
    assert repr([json.loads(body)]) == repr(received)


async def test_numbers_beyond_64_bits_make_an_array_of_floats() -> None:
    async def handler(value: np.ndarray) -> str:  # type: ignore[type-arg]
        return f"{value.dtype} {value.tolist()}"

    async with serving(handler) as client:
        answer = await client(b"[100000000000000000000, 1]")
        refused = await client(b"[1" + b"0" * 400 + b"]")
    assert b"float64 [1e+20, 1.0]" == answer.body
    assert 422 == refused.status


@pytest.mark.parametrize("annotation", [dict, Model, Point])
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff", b"[" * 100_000),
        *(b"NaN", b'{"x": NaN}', b'{"x": Infinity}', b'{"x": [1, -Infinity]}'),
    ],
)
async def test_what_is_no_json_is_refused(annotation: Any, body: bytes) -> None:
    async with serving(_handler(annotation)) as client:
        answer = await client(body)
    assert 400 == answer.status
    assert "The body is not JSON" in answer.json()["detail"]


@pytest.mark.parametrize("body", [b"", b" \n"])
async def test_an_empty_body_is_called_empty(body: bytes) -> None:
    async with serving(_handler(dict)) as client:
        answer = await client(body)
    assert {"detail": "The body is not JSON: it is empty"} == answer.json()


async def test_a_request_refuses_words_that_are_no_json() -> None:
    async def handler(request: Request) -> object:
        return await request.json()

    async with serving(handler) as client:
        refused = await client(b'{"a": NaN}')
        text = await client(b'{"a": "NaN or Infinity"}')
    assert (400, 200) == (refused.status, text.status)
    assert "NaN is not JSON (RFC 8259, 6)" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"1e999", "the number 1e999 is beyond 1.8e308"),
        (b'{"count": -1E+400, "name": ""}', "the number -1E+400 is beyond"),
        (b"[1" + b"0" * 400 + b".5]", "is beyond 1.8e308"),
        (b'"\\ud800"', "a text has \\ud800 alone"),
        (b'{"count": 1, "name": "\\udc00\\ud800"}', "alone, half of a letter"),
        ('"\\ud800"'.encode("utf-16"), "a text has \\ud800 alone"),
        (gzip.compress(b"[1]", mtime=0), "it is compressed by gzip"),
        (zlib.compress(b"[1]"), "it is compressed by deflate"),
    ],
)
async def test_what_no_json_gives_back_is_refused(body: bytes, expected: str) -> None:
    async with serving(_handler(list)) as client:
        answer = await client(body)
    assert 400 == answer.status
    assert expected in answer.json()["detail"]


async def test_models_refuse_numbers_beyond_a_float() -> None:
    async def handler(values: Numbers) -> list[float]:
        return values.numbers

    async with serving(handler) as client:
        refused = await client(b'{"numbers": [1, 1e999]}')
        taken = await client(b'{"numbers": [1e308, 1e-999]}')
    assert (400, [1e308, 0.0]) == (refused.status, taken.json())


async def test_long_numbers_and_long_exponents_of_texts_are_taken() -> None:
    body = b'[1e308, 1e-999, "1e999", "\\ud83d\\ude00", 1' + b"0" * 400 + b"]"

    async def handler(value: list[Any]) -> list[Any]:
        return value

    async with serving(handler) as client:
        answer = await client(body)
    assert [1e308, 0.0, "1e999", "\U0001f600", 10**400] == json.loads(answer.body)


async def test_models_take_texts_with_these_words() -> None:
    async def handler(model: Model) -> str:
        return model.name

    async with serving(handler) as client:
        answer = await client(b'{"count": 1, "name": "NaN and Infinity"}')
    assert (200, b"NaN and Infinity") == (answer.status, answer.body)


async def test_bytes_are_the_body_as_it_is() -> None:
    async def handler(data: bytes) -> bytes:
        return data[::-1]

    async with serving(handler) as client:
        answer = await client(b"\x00\x01")
    assert (200, b"\x01\x00") == (answer.status, answer.body)
    assert "application/octet-stream" == answer.headers["content-type"]


async def test_text_may_come_plain_or_as_json() -> None:
    async def handler(text: str) -> str:
        return text.upper()

    async with serving(handler) as client:
        plain = await client("ä b".encode(), headers={"content-type": "text/plain"})
        quoted = await client(json="ä b")
        broken = await client(b"\xff", headers={"content-type": "text/plain"})
    assert ["Ä B", "Ä B"] == [plain.body.decode(), quoted.body.decode()]
    assert 400 == broken.status


async def test_without_parameters_a_handler_is_called_without() -> None:
    async def handler() -> str:
        return "hello"

    async with serving(handler) as client:
        assert b"hello" == (await client(b"ignored", method="GET")).body


@pytest.mark.parametrize("annotation", [NOTHING, Request, Any, object])
async def test_a_request_comes_when_annotated_or_not_at_all(annotation: Any) -> None:
    async def handler(request):  # type: ignore[no-untyped-def]
        assert isinstance(request, Request)
        return {
            "json": await request.json(),
            "again": await request.json(),
            "body": len(await request.body()),
            "path": request.url.path,
            "url": str(request.url),
            "query": dict(request.query_params),
            "header": request.headers["X-Header"],
            "method": request.method,
            "client": request.scope["client"][0],
            "root": request.scope["root_path"],
            "gone": await request.is_disconnected(),
        }

    if annotation is not NOTHING:
        handler.__annotations__["request"] = annotation
    async with serving(handler) as client:
        answer = await client(
            b'{"a":1}   ',
            method="PUT",
            target=b"/app/p%C3%A4th?x=1&y=%20",
            root_path="/app",
            headers={"host": "example.org:81", "x-header": "v"},
        )
    assert {
        "json": {"a": 1},
        "again": {"a": 1},
        "body": 10,
        "path": "/app/päth",
        "url": "http://example.org:81/app/päth?x=1&y=%20",
        "query": {"x": "1", "y": " "},
        "header": "v",
        "method": "PUT",
        "client": "127.0.0.1",
        "root": "/app",
        "gone": False,
    } == answer.json()


async def test_a_request_streams_a_body_that_comes_in_pieces() -> None:
    async def handler(request: Request) -> list[str]:
        return [piece.decode() async for piece in request.stream() if piece]

    async with serving(handler) as client:
        call = client.begin(None)
        for piece in (b"one", b"two"):
            client.native.endpoint.push(_router.MESSAGE, call.token, None, piece)
        client.native.endpoint.push(_router.HALF_CLOSE, call.token)
        assert ["one", "two"] == (await answer_of(call)).json()


async def test_a_body_in_pieces_is_put_together_for_data() -> None:
    async with serving(_handler(dict)) as client:
        call = client.begin(None)
        for piece in (b'{"a"', b": 1}"):
            client.native.endpoint.push(_router.MESSAGE, call.token, None, piece)
        client.native.endpoint.push(_router.HALF_CLOSE, call.token)
        assert {"a": 1} == (await answer_of(call)).json()["value"]


async def test_a_form_is_parsed() -> None:
    async def handler(request: Request) -> Any:
        return dict(await request.form())

    headers = {"content-type": "application/x-www-form-urlencoded"}
    async with serving(handler) as client:
        assert {"a": "1"} == (await client(b"a=1", headers=headers)).json()


async def test_a_handler_that_lets_bad_json_pass_answers_400() -> None:
    async def handler(request: Request) -> Any:
        return await request.json()

    async with serving(handler) as client:
        answer = await client(b"{]")
    assert 400 == answer.status
    assert "The body is not JSON" in answer.json()["detail"]


async def test_several_parameters_are_the_fields_of_an_object() -> None:
    async def handler(a: int, b: Positive, *, c: str = "default") -> Any:
        return [a, b, c]

    async with serving(handler) as client:
        full = await client(json={"a": 1, "b": {"value": 2}, "c": "x"})
        short = await client(json={"a": 1, "b": {"value": 2}})
        wrong = await client(json={"b": {}, "d": 1})
    assert [1, {"value": 2.0}, "x"] == full.json()
    assert [1, {"value": 2.0}, "default"] == short.json()
    assert [["body", "a"], ["body", "b", "value"], ["body", "d"]] == [
        each["loc"] for each in wrong.json()["detail"]
    ]


async def test_a_parameter_that_is_given_by_name_is_a_field() -> None:
    async def handler(*, text: str) -> list[str]:
        return [text.upper()]

    async def with_default(*, times: int = 2) -> int:
        return times

    async with serving(handler) as client:
        assert ["GOOD"] == (await client(json={"text": "good"})).json()
        wrong = await client(json={"txt": "good"})
        whole = await client(json="good")
    assert [["body", "text"], ["body", "txt"]] == [each["loc"] for each in wrong.json()["detail"]]
    assert [422, 422] == [wrong.status, whole.status]
    async with serving(with_default) as client:
        assert [2, 3] == [(await client()).json(), (await client(json={"times": 3})).json()]


async def test_fields_without_annotations_are_taken_as_they_are() -> None:
    def add(a, b, /, **others):  # type: ignore[no-untyped-def]
        return [a + b, others]

    async with serving(add) as client:
        assert [3, {"c": 4}] == (await client(json={"a": 1, "b": 2, "c": 4})).json()


async def test_a_request_may_stand_beside_fields_and_defaults() -> None:
    async def beside(n: int, request: Request) -> Any:
        return [n, request.method]

    async def alone(request, scale=2):  # type: ignore[no-untyped-def]
        return [request.method, scale]

    async with serving(beside) as client:
        assert [5, "POST"] == (await client(json={"n": 5})).json()
    async with serving(alone) as client:
        assert ["POST", 2] == (await client()).json()


async def test_an_empty_body_leaves_the_default() -> None:
    async def handler(data: dict[str, int] = {"d": 1}) -> dict[str, int]:  # noqa: B006 (read only)
        return data

    async with serving(handler) as client:
        assert {"d": 1} == (await client()).json()
        assert {"a": 2} == (await client(json={"a": 2})).json()


async def test_annotations_may_be_texts(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(annotated.by_request) as client:
        assert ["PlainRequest", "POST", [1]] == (await client(json=[1])).json()
    order = {"items": [{"name": "a", "price": 1}], "parent": {"items": []}}
    async with serving(annotated.by_order) as client:
        (answered, kind) = (await client(json=order)).json()
    assert "Item" == kind
    assert {
        "items": [{"name": "a", "price": 1.0, "tags": []}],
        "parent": {"items": [], "parent": None},
    } == answered
    async with serving(annotated.by_missing_name, development=True) as client:
        answer = await client(json=1)
    assert 500 == answer.status
    assert "the annotation 'Money' of 'money' cannot be looked up" in caplog.text


async def test_a_field_of_a_type_that_is_not_there_is_taken_as_it_comes() -> None:
    @dataclass
    class Partly:
        known: "int"
        unknown: "NotHere"  # type: ignore[name-defined]  # noqa: F821 (that is the case)

    async def handler(data: Partly) -> Any:
        return data

    async with serving(handler) as client:
        value = {"known": 1, "unknown": {"a": 1}}
        assert value == (await client(json=value)).json()
        assert 422 == (await client(json={"known": "1", "unknown": 0})).status


async def test_methods_of_objects_and_objects_that_are_called_are_alike() -> None:
    class Doubling:
        async def __call__(self, n: int) -> int:
            return 2 * n

    async with serving(Doubling()) as client:
        assert 6 == (await client(json=3)).json()


@dataclass
class Tree:
    child: "Tree | None" = None


@pytest.mark.parametrize(("depth", "status"), [(200, 200), (260, 200), (1000, 400)])
async def test_a_text_that_is_nested_too_deeply_for_its_type_is_refused(
    depth: int, status: int
) -> None:
    async def echo(tree: Tree) -> Tree:
        return tree

    body = b'{"child":' * depth + b"null" + b"}" * depth
    async with serving(echo) as client:
        answer = await client(body)
    assert status == answer.status, answer.body
    assert answer.body == body or b"nested too deeply for its type" in answer.body
