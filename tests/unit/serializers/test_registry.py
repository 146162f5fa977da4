"""Codecs are found by name, and users add their own."""

import threading

import pytest

from pyserve import serializers
from pyserve.errors import SerializationError, UsageError
from pyserve.serializers import ValueCodec, codec, names, register_codec


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(serializers, "_codecs", dict(serializers._codecs))


class Upper(ValueCodec):
    """A codec of a user."""

    name = "upper"

    def encode(self, value):
        return [str(value).upper().encode()]

    def decode(self, body):
        return bytes(body).decode()


def named(text, *, mesh_only=False):
    return type("Named", (Upper,), {"name": text, "mesh_only": mesh_only})()


@pytest.mark.parity("S-78")
def test_the_names_of_the_interface_are_there():
    expected = {"proto", "raw", "json", "orjson", "msgpack", "pickle", "cloudpickle"}
    assert expected == set(names())
    assert "json" == codec("orjson").name
    assert {"pickle", "cloudpickle"} == {name for name in names() if codec(name).mesh_only}


def test_a_users_codec_is_found_by_its_name_and_aliases():
    mine = Upper()
    register_codec(mine, aliases=["shout"])
    assert codec("upper") is mine is codec("shout")
    assert {"upper", "shout"} < set(names())


def test_a_module_may_be_imported_again():
    register_codec(Upper())
    again = Upper()
    register_codec(again)
    assert codec("upper") is again


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "cannot follow"),
        ("Upper", "lower case"),
        ("a b", "cannot follow"),
        ("a+b", "cannot follow"),
        ("a;b", "cannot follow"),
        ("é", "cannot follow"),
        ("a" * 64, "at most 63"),
        (None, "cannot follow"),
        ("json", "is taken"),
        ("orjson", "is taken"),
        ("mypickle", "mesh_only = True"),
    ],
)
def test_wrong_names_are_refused(name, text):
    with pytest.raises(UsageError, match=text):
        register_codec(named(name))


def test_a_pickle_that_says_mesh_only_is_taken():
    register_codec(named("dill-pickle", mesh_only=True))
    assert codec("dill-pickle").mesh_only


def test_another_class_does_not_take_a_name():
    register_codec(named("mine"))
    other = type("Other", (Upper,), {"name": "mine"})()
    with pytest.raises(UsageError, match="is taken by"):
        register_codec(other)


def test_a_wrong_alias_registers_nothing():
    with pytest.raises(UsageError):
        register_codec(Upper(), aliases=["json"])
    assert "upper" not in names()


def test_an_object_that_is_no_codec_is_refused():
    with pytest.raises(UsageError, match="lacks encode"):
        register_codec(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["yaml", "", "JSON", None, ["json"]])
@pytest.mark.parity("S-78")
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(SerializationError, match="known are cloudpickle, json, msgpack"):
        codec(name)


def test_threads_that_register_at_once_lose_nothing():
    barrier = threading.Barrier(8)

    def register(index):
        barrier.wait(10)
        for number in range(50):
            register_codec(named(f"c{index}-{number}"))

    threads = [threading.Thread(target=register, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 8 * 50 == sum(name.startswith("c") and "-" in name for name in names())
