"""All checks, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pyserve.config import MeshSettings
from pyserve.driver.doctor.around import check_environment, check_otlp
from pyserve.driver.doctor.files import check_certificates, check_home, check_token
from pyserve.driver.doctor.findings import Finding, wrong
from pyserve.driver.doctor.findings import ok as fine
from pyserve.driver.doctor.machine import check_descriptors, check_disks, check_free_ports
from pyserve.driver.doctor.mesh import check_mesh


def examine(settings: MeshSettings) -> Iterator[Finding]:
    """Yield what was found, in the order in which it was looked at.

    Args:
        settings: Of the mesh to look at, which need not run.
    """
    yield from check_environment()
    parts = (
        check_descriptors,
        check_disks,
        check_home,
        check_token,
        check_certificates,
        check_otlp,
    )
    for check in parts:
        yield from _bounded(partial(check, settings), check.__name__)
    found = check_mesh(settings)
    if found is None:
        yield fine("controller", f"no mesh runs in {settings.home}")
        yield from check_free_ports(settings)
    else:
        yield from found


def _bounded(check: partial[Iterator[Finding]], name: str) -> Iterator[Finding]:
    try:
        yield from check()
    except OSError as error:
        # What cannot be looked at is a finding, and no reason to leave the others out.
        subject = name.removeprefix("check_")
        yield wrong(subject, f"it cannot be looked at: {error}", "run this as the mesh's user")
