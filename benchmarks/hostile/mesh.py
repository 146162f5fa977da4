"""The attacked mesh, in processes of its own, and what one can see of its ingress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

import pyserve
from benchmarks.hostile.application import plain_app, sockets_app
from benchmarks.hostile.attacks import Attack
from pyserve.config import read_settings
from pyserve.control.discovery import read_record
from services.echo.service import app
from tests.mesh.doors.apps import app as things_app

# Its controller then has a port for other machines, which are all on this one.
_ADVERTISED = {"PYSERVE_ADVERTISE_HOST": "127.0.0.1"}


@contextmanager
def attacked_mesh() -> Iterator[str]:
    """Run the services, ``/plain`` and ``/sockets``; yield the address of the ingress."""
    os.environ.update(_ADVERTISED)
    try:
        pyserve.start(address="127.0.0.1:0")
        pyserve.run(app, name="echo", route_prefix=None)
        pyserve.run(plain_app, name="plain", route_prefix="/plain")
        pyserve.run(sockets_app, name="sockets", route_prefix="/sockets")
        pyserve.run(things_app, name="things", route_prefix=None)
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()
        for name in _ADVERTISED:
            del os.environ[name]


def target_of(attack: Attack, ingress: str) -> str:
    """Return the address that is attacked, given that of the ingress."""
    if not attack.on_controller:
        return ingress
    record = read_record(read_settings().home)
    assert record is not None
    return record.controller_tcp


def ingress_process() -> psutil.Process:
    """Return the process in which the ingress is."""
    (ingress,) = pyserve.status().ingresses
    return psutil.Process(ingress.pid)


def in_flight() -> int:
    """Return the calls that have not ended at the ingress and on their way to replicas."""
    ingress = pyserve.status().ingress
    return ingress.in_flight + ingress.parked + sum(ingress.in_flight_of_replica.values())
