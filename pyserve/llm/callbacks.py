"""Hooks that users run around the start of an engine, with the names of Ray Serve LLM.

``LLMServer`` makes the callback of a ``CallbackConfig`` in each replica, and calls its hooks there:
``on_before_node_init``, ``on_before_download_model_files_distributed`` before files are fetched,
by itself or by the engine, and ``on_after_node_init`` once the engine has started.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pyserve.api.code import import_attribute
from pyserve.errors import UsageError

if TYPE_CHECKING:
    from pyserve.llm.config import LLMConfig

_LOGGER = logging.getLogger(__name__)


@dataclass
class CallbackCtx:
    """What hooks may read and change.

    Attributes:
        runtime_env: Of the replicas.
        custom_data: The callback's own.
        run_init_node: Set it to ``False`` in ``on_before_node_init``, and no files are fetched.
        worker_node_download_model, placement_group: ``None``: they are Ray's.
    """

    worker_node_download_model: Any = None
    placement_group: Any = None
    runtime_env: dict[str, Any] | None = None
    custom_data: dict[str, Any] = field(default_factory=dict)
    run_init_node: bool = True


class CallbackBase:
    """A base for callbacks; a subclass overrides the hooks that it needs.

    Args:
        llm_config: The model that is started.
        raise_error_on_callback: Whether an exception of a hook fails the replica; otherwise it is
            logged.
        ctx_kwargs: Fields of ``ctx``.
        **kwargs: What ``callback_kwargs`` has.
    """

    def __init__(
        self,
        llm_config: LLMConfig,
        raise_error_on_callback: bool = True,
        ctx_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.raise_error_on_callback = raise_error_on_callback
        self.kwargs = kwargs
        self.llm_config = llm_config
        self.ctx = CallbackCtx(**(ctx_kwargs or {}))

    async def on_before_node_init(self) -> None:
        """Run before anything is fetched or started."""

    async def on_after_node_init(self) -> None:
        """Run when the engine has started."""

    def on_before_download_model_files_distributed(self) -> None:
        """Run before files are fetched."""

    async def run_callback(self, method_name: str) -> None:
        """Call a hook, which may be a coroutine.

        Raises:
            UsageError: There is none of that name, or it has raised.
        """
        hook = getattr(self, method_name, None)
        if hook is None:
            raise UsageError(f"{type(self).__qualname__} has no hook {method_name!r}")
        try:
            result = hook()
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            text = f"the hook {method_name} of {type(self).__qualname__} raised"
            if self.raise_error_on_callback:
                raise UsageError(f"{text} {type(error).__name__}: {error}") from error
            _LOGGER.exception("%s", text)


@dataclass
class CallbackConfig:
    """Which callback a model has.

    Attributes:
        callback_class: The class, or its import path.
        callback_kwargs: Arguments for it.
        raise_error_on_callback: Whether an exception of a hook fails the replica.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    callback_class: str | type[CallbackBase] = CallbackBase
    callback_kwargs: dict[str, Any] = field(default_factory=dict)
    raise_error_on_callback: bool = True

    def make(self, llm_config: LLMConfig) -> CallbackBase:
        """Return the callback for a model.

        Raises:
            ImportPathError: The class cannot be imported.
        """
        found: Any = self.callback_class
        if isinstance(found, str):
            found = import_attribute(found)
        made: CallbackBase = found(
            llm_config=llm_config,
            raise_error_on_callback=self.raise_error_on_callback,
            ctx_kwargs={"runtime_env": llm_config.runtime_env},
            **self.callback_kwargs,
        )
        return made
