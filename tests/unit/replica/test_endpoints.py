"""Where a replica listens and what it advertises."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from pyserve.config import NodeSettings
from pyserve.replica.endpoints import advertised_host, bind_host, choose_socket

NODE = NodeSettings(node_id="here")


@pytest.mark.parity("S-73")
@pytest.mark.parametrize(
    ("controller", "host"),
    [
        ("unix:/run/controller.sock", "127.0.0.1"),
        ("127.0.0.1:5000", "127.0.0.1"),
        ("[::1]:5000", "127.0.0.1"),
        ("localhost:5000", "127.0.0.1"),
        ("10.1.2.3:5000", "0.0.0.0"),
        ("controller:5000", "0.0.0.0"),
    ],
)
def test_it_listens_everywhere_only_when_the_controller_is_elsewhere(
    controller: str, host: str
) -> None:
    assert host == bind_host(NODE, controller)
    assert "10.0.0.9" == bind_host(replace(NODE, bind_host="10.0.0.9"), controller)


@pytest.mark.parametrize(
    ("node", "controller", "bound", "advertised"),
    [
        (NODE, "unix:/x", "127.0.0.1", "127.0.0.1"),
        (NODE, "unix:/x", "0.0.0.0", "127.0.0.1"),
        (NODE, "10.1.2.3:5000", "10.0.0.9", "10.0.0.9"),
        (replace(NODE, advertise_host="me.example"), "10.1.2.3:1", "0.0.0.0", "me.example"),
    ],
)
def test_what_is_advertised_can_be_dialled(
    node: NodeSettings, controller: str, bound: str, advertised: str
) -> None:
    assert advertised == advertised_host(node, controller, bound)


def test_a_socket_of_its_own_lies_in_a_private_directory_that_goes_with_it() -> None:
    place = choose_socket(None)
    directory = place.path.parent
    assert 0o700 == stat.S_IMODE(directory.stat().st_mode)
    place.path.touch()
    place.close()
    assert not directory.exists()
    place.close()


def test_a_fork_does_not_remove_its_parents_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = choose_socket(tmp_path)
    place.path.touch()
    with monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: -1)
        place.close()
    assert place.path.exists()
    place.close()
    assert not place.path.exists()
    assert tmp_path.exists()
