"""``ray.serve.task_consumer``: work from a message broker, which comes with a later release."""

from collections.abc import Callable
from typing import Any

from pyserve.later import Later, refused

_INSTEAD = "take the messages in a task of the deployment, and call handles from there"


class CeleryAdapterConfig(Later):
    """Which broker Celery has, and where it keeps results."""

    instead = _INSTEAD


class TaskProcessorConfig(Later):
    """Queue and adapter of a consumer."""

    instead = _INSTEAD


class TaskResult(Later):
    """What became of a task."""

    instead = _INSTEAD


def task_consumer(*_args: Any, **_kwargs: Any) -> Callable[..., Any]:
    """Make a class take tasks from a queue.

    Raises:
        NotYetSupported: Always.
    """
    refused("pyserve.task_consumer.task_consumer", _INSTEAD)


def task_handler(*_args: Any, **_kwargs: Any) -> Callable[..., Any]:
    """Mark the method that runs the tasks of a name.

    Raises:
        NotYetSupported: Always.
    """
    refused("pyserve.task_consumer.task_handler", _INSTEAD)


def instantiate_adapter_from_config(*_args: Any, **_kwargs: Any) -> object:
    """Make what sends tasks to a queue.

    Raises:
        NotYetSupported: Always.
    """
    refused("pyserve.task_consumer.instantiate_adapter_from_config", _INSTEAD)


__all__ = ["instantiate_adapter_from_config", "task_consumer", "task_handler"]
