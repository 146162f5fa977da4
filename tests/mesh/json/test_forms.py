"""JSON of messages is what ``google.protobuf.json_format`` makes and takes."""

from __future__ import annotations

import base64
import json
import random
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx
import pytest
from google.protobuf import json_format, message

from tests.mesh.json import forms_pb2
from tests.mesh.json.apps import FORMS
from tests.mesh.json.generated import holder

if TYPE_CHECKING:
    # Which of two kinds the library gives says nothing to its users.
    FieldDescriptor = Any

_PATH: Final = "/forms.v1.Forms"

_Message = TypeVar("_Message", bound=message.Message)

_VALUES: Final = (
    "null",
    "true",
    "0",
    "-0.0",
    "1",
    "1.0",
    "-1",
    "1.5",
    "1e2",
    "2147483648",
    "1e10",
    "1e19",
    "18446744073709551615",
    "1e39",
    "1e999",
    '""',
    '"1"',
    '"-0"',
    '"1e2"',
    '"1e-1"',
    '"1.5"',
    '" 1"',
    '"NaN"',
    '"nan"',
    '"Infinity"',
    '"-Infinity"',
    '"true"',
    '"a"',
    '"a,bC.d"',
    '"a_b"',
    '"AQI="',
    '"-_8"',
    '"COLOUR_RED"',
    '"COLOUR_OF_THE_FUTURE"',
    '"NULL_VALUE"',
    '"1s"',
    '"-1.000000001s"',
    '"315576000001s"',
    '"1970-01-01T00:00:00Z"',
    '"2024-02-29T23:59:59.123456789+05:30"',
    '"0000-01-01T00:00:00Z"',
    '"2023-02-29T00:00:00Z"',
    '"1970-01-01t00:00:00z"',
    "[]",
    "[null]",
    '[1, "a", {}]',
    "{}",
    '{"value": 1}',
    '{"unknown": [{}]}',
    '{"@type": "x/google.protobuf.DoubleValue", "value": "NaN"}',
    '{"value": {"value": null}, "@type": "x/google.protobuf.Any"}',
    '{"@type": "x/google.protobuf.Empty"}',
    '{"@type": "x/forms.v1.Single", "doubleField": -0.0, "nullValueField": 0}',
    '{"@type": "x/not.There"}',
    '{"@type": "x/google.protobuf.Duration"}',
)
"""JSON, each of which some field takes and others do not."""

_NO_BASE64: Final = tuple(text for text in _VALUES if re.search(r'^".*[^\w\-/+="].*"$', text))


def _is_laxer(field: FieldDescriptor, value: str) -> bool:
    """Say whether Python takes a value that the guide does not.

    It is refused here, or ignored as a name that an enum does not have.
    """
    if field.name == "value_field":
        return value == "1e999"  # an infinity, which cannot be written
    if field.name in ("bytes_field", "bytes_value_field"):
        return value in _NO_BASE64  # letters of no alphabet are skipped
    if field.enum_type is not None:
        return value in ("true", "1.5", '" 1"')  # any number is cut to a whole one
    if "double" in field.name or "float" in field.name:
        return value in ("true", '" 1"')  # whatever float() takes
    if field.message_type is not None and field.message_type.name in ("Empty", "Holder"):
        return value[0] in '"['  # a text or a list has no names that are known
    return False


def _post(client: httpx.Client, path: str, text: str) -> httpx.Response:
    return client.post(path, content=text, headers={"content-type": "application/json"})


def _parsed(text: str, into: _Message) -> _Message | None:
    try:
        return json_format.Parse(text, into, ignore_unknown_fields=True)
    except (json_format.ParseError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _got(client: httpx.Client, text: str) -> forms_pb2.Holder | None:
    """Return what a servicer gets of JSON; ``None``: it is refused."""
    answer = _post(client, f"{_PATH}/Wire", text)
    if answer.status_code == 400:
        return None
    assert answer.status_code == 200, (text, answer.text)
    return forms_pb2.Holder.FromString(base64.b64decode(answer.json().get("bytes", "")))


def _shown(value: message.Message | None) -> Any:
    """Return a message so that equal ones are equal: bytes in ``Any`` may differ."""
    return None if value is None else json.dumps(_plain(json_format.MessageToDict(value)))


@pytest.mark.parametrize("seed", range(60))
def test_any_message_has_the_same_json_in_both_directions(forms: httpx.Client, seed: int) -> None:
    sent = holder(random.Random(seed))
    text = json_format.MessageToJson(sent)
    got = _got(forms, text)
    assert _shown(got) == _shown(sent)

    given = json.dumps({"bytes": base64.b64encode(sent.SerializeToString()).decode()})
    for answer in (_post(forms, f"{_PATH}/Give", given), _post(forms, "/v1/forms", text)):
        assert answer.status_code == 200, answer.text
        # As texts, so that -0.0 is not 0.0 and NaN is NaN.
        assert json.dumps(_plain(answer.json())) == json.dumps(_plain(json.loads(text)))


def _plain(value: Any) -> Any:
    """Return JSON with one order of names and one form of numbers."""
    match value:
        case dict():
            return {name: _plain(value[name]) for name in sorted(value)}
        case list():
            return [_plain(element) for element in value]
        case bool() | None | str():
            return value
        case _:
            return float(value)


@pytest.mark.parametrize("field", [field.name for field in forms_pb2.Single.DESCRIPTOR.fields])
def test_a_value_is_taken_or_refused_alike_at_every_place(forms: httpx.Client, field: str) -> None:
    single = forms_pb2.Single.DESCRIPTOR.fields_by_name[field]
    kind = single.message_type.full_name if single.message_type else ""
    for index, value in enumerate(_VALUES):
        alone = f'{{"single": {{"{field}": {value}}}}}'
        if _is_laxer(single, value):
            assert _shown(_got(forms, alone)) in (None, '{"single": {}}'), alone
            continue
        places = [
            f'{{"lists": {{"{field}": [{value}]}}}}',
            f'{{"maps": {{"{field}": {{"k": {value}}}}}}}',
            f'{{"choice": {{"{single.json_name}": {value}}}}}',
            f'{{"any": {{"{field}": {value}, "@type": "x/forms.v1.Single"}}}}',
            f'{{"any": {{"@type": "x/{kind}", "value": {value}}}}}' if kind else alone,
        ]
        # Each place for some values, in turn; null has no turn in lists of NullValue, which Python
        # writes and does not read.
        place = places[(index + single.number) % len(places)]
        is_null_value = field == "null_value_field" and value == "null"
        for text in (alone, places[2] if is_null_value else place):
            expected = _parsed(text, forms_pb2.Holder())
            assert _shown(_got(forms, text)) == _shown(expected), text


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_a_whole_message_too(forms: httpx.Client, form: str) -> None:
    field = next(
        field
        for field in forms_pb2.Single.DESCRIPTOR.fields
        if field.message_type and field.message_type.name == form
    )
    make = type(getattr(forms_pb2.Single(), field.name))
    for value in _VALUES:
        if _is_laxer(field, value):
            continue
        expected = _parsed(value, make())
        answer = _post(forms, f"{_PATH}/{form}", value)
        assert answer.status_code == (400 if expected is None else 200), (value, answer.text)
        if expected is not None:
            assert _plain(answer.json()) == _plain(json_format.MessageToDict(expected)), value


@pytest.mark.parametrize("field", [field.name for field in forms_pb2.Keys.DESCRIPTOR.fields])
def test_keys_of_maps_are_texts_of_their_kind(forms: httpx.Client, field: str) -> None:
    for key in (
        "",
        "0",
        "-1",
        "1e2",
        "1.0",
        "1.5",
        "4294967296",
        "1e19",
        "true",
        "True",
        " 1",
        "a",
    ):
        text = json.dumps({"keys": {field: {key: 1}}})
        expected = _parsed(text, forms_pb2.Holder())
        assert _shown(_got(forms, text)) == _shown(expected), text


def test_a_field_that_is_there_twice_is_refused_wherever_it_is(forms: httpx.Client) -> None:
    for twice in (
        '"int32Field": 1, "int32Field": 1',
        '"int32Field": 1, "int32_field": 1',
        '"boolValueField": true, "boolValueField": null',
        '"innerField": {}, "innerField": {}',
    ):
        packed = f'{{"any": {{"@type": "x/forms.v1.Single", {twice}}}}}'
        for text in (f'{{"single": {{{twice}}}}}', packed):
            assert _post(forms, f"{_PATH}/Echo", text).status_code == 400, text


def test_one_field_as_a_body_and_as_an_answer(forms: httpx.Client) -> None:
    text = '{"doubleValueField": "NaN", "anyField": {}}'
    answer = forms.put(
        "/v1/forms/single", content=text, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()) == (200, json.loads(text))


def test_an_answer_that_has_no_json_is_an_error_of_the_servicer(forms: httpx.Client) -> None:
    wrong = forms_pb2.Holder()
    wrong.single.timestamp_field.seconds = 2**60
    given = json.dumps({"bytes": base64.b64encode(wrong.SerializeToString()).decode()})
    answer = _post(forms, f"{_PATH}/Give", given)
    assert answer.status_code == 500
    assert "a time is of the years 1 to 9999" in answer.text
