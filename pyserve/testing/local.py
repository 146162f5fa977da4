"""Applications in this process for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyserve.driver.api import delete, run
from pyserve.driver.local import end_local, find_local
from pyserve.errors import WrongMoment
from pyserve.types import ApplicationName

if TYPE_CHECKING:
    from pyserve.api.deployment import Application
    from pyserve.api.handles.handle import DeploymentHandle


@contextmanager
def local(
    app: Application, *, name: str = "default", timeout_s: float | None = 60.0
) -> Iterator[DeploymentHandle[Any]]:
    """Run an application in this process until the block ends, and yield its handle.

    It is what ``pyserve.run(app, local_testing_mode=True)`` does, with an end: calls in flight
    get their deployment's ``graceful_shutdown_timeout_s``, then instances are closed. Blocks may
    be nested under different names.

    Args:
        app: What ``bind`` returned.
        name: The application's name.
        timeout_s: How long constructors may take; ``None``: as long as they like.

    Raises:
        DeploymentFailed: User code could not be loaded, or raised.
        TimeoutError: It was not ready in time.
        WrongMoment: An application of that name runs in this process already.
    """
    runtime = find_local()
    if runtime is not None and ApplicationName(name) in runtime.mesh.applications:
        # It would be replaced under the eyes of the block that runs it, such as a fixture's.
        raise WrongMoment(
            f"an application {name!r} runs in this process already, of a fixture perhaps; end it "
            f"first, or give one of them another name: name=..."
        )
    handle = run(app, name=name, timeout_s=timeout_s, local_testing_mode=True)
    try:
        yield handle
    finally:
        delete(name)
        runtime = find_local()
        if runtime is not None and not runtime.mesh.applications:
            end_local()  # No thread is left behind.
