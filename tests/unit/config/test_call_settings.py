"""Variables that say how calls and messages go where nobody says it in the code."""

import pytest

from pyserve.config import (
    CallSettings,
    DeploymentOptions,
    older_names,
    read_call_settings,
    read_settings,
)
from pyserve.errors import OptionError

LIMIT = "PYSERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH"
BY_VALUE = "PYSERVE_USE_GRPC_BY_DEFAULT"


def test_without_variables_nothing_is_said():
    assert CallSettings(by_reference=None, message_bytes_max=None) == read_settings({}).calls


@pytest.mark.parity("S-76")
@pytest.mark.parametrize(("value", "expected"), [("1", False), ("0", None), ("", None)])
def test_values_go_whole_by_default_where_the_switch_says_so(value: str, expected: bool | None):
    assert expected is read_settings({BY_VALUE: value}).calls.by_reference


@pytest.mark.parity("S-76")
@pytest.mark.parity("S-79")
@pytest.mark.parametrize(("name", "value"), [(BY_VALUE, "1"), (LIMIT, "70000")])
def test_the_names_of_ray_serve_are_read_with_one_warning(name: str, value: str):
    alias = name.replace("PYSERVE", "RAY_SERVE")
    found = read_settings({alias: value}).calls
    assert [f"{alias} is read as {name}; write {name}"] == older_names({alias: value})
    assert found == read_call_settings({alias: value}) == read_call_settings({name: value})
    assert CallSettings() != found


@pytest.mark.parity("S-79")
@pytest.mark.parametrize("name", [LIMIT, "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH"])
def test_the_limit_of_messages_holds_both_ways_unless_a_deployment_has_its_own(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(name, "70000")
    options = DeploymentOptions()
    assert (70_000, 70_000) == (options.max_receive_message_bytes, options.max_send_message_bytes)
    options = DeploymentOptions.of({"max_receive_message_bytes": 5, "max_send_message_bytes": 6})
    assert (5, 6) == (options.max_receive_message_bytes, options.max_send_message_bytes)


@pytest.mark.parity("S-79")
def test_the_limit_travels_with_the_deployment(monkeypatch: pytest.MonkeyPatch):
    """The process that reads the options has an environment of its own."""
    monkeypatch.setenv(LIMIT, "70000")
    text = DeploymentOptions().to_json()
    monkeypatch.setenv(LIMIT, "9")
    assert 70_000 == DeploymentOptions.from_json(text).max_receive_message_bytes


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (BY_VALUE, "yes", "1 for yes, 0 for no"),
        (LIMIT, "0", "a number of bytes from 1 to 2147483647"),
        (LIMIT, "-1", "a number of bytes from 1 to 2147483647"),
        (LIMIT, "4MiB", "a number of bytes from 1 to 2147483647"),
        (LIMIT, str(2**31), "a number of bytes from 1 to 2147483647"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(name: str, value: str, text: str):
    with pytest.raises(OptionError, match=f"{name}.*{text}"):
        read_settings({name: value})
