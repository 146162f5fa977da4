"""Fetches the adapters of a replica, loads them into its engine, and unloads the oldest ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pyserve.errors import UsageError
from pyserve.llm.config import LLMConfig, LoraConfig
from pyserve.llm.engine import Engine
from pyserve.llm.errors import ModelNotFound
from pyserve.llm.fetching import fetched, is_remote
from pyserve.multiplexing.decorator import multiplexed

_LOGGER = logging.getLogger(__name__)


class _Loaded:
    """An adapter that the engine has."""

    def __init__(self, engine: Any, name: str) -> None:
        self._engine = engine
        self._name = name

    async def aclose(self) -> None:
        await self._engine.unload_adapter(self._name)


class Adapters:
    """Loads the adapters that requests name, and keeps those that were used last.

    Args:
        config: Of the model; it has a ``lora_config`` with a folder.
        engine: Has ``async def load_adapter(name, path)`` and ``unload_adapter(name)``.

    Raises:
        UsageError: The engine lacks them.
    """

    def __init__(self, config: LLMConfig, engine: Engine) -> None:
        assert config.lora_config is not None, "there are adapters"
        self._lora: LoraConfig = config.lora_config
        self._model_id = config.model_id
        self._engine: Any = engine
        for name in ("load_adapter", "unload_adapter"):
            if not callable(getattr(engine, name, None)):
                raise UsageError(
                    f"lora_config.dynamic_lora_loading_path of {config.model_id!r}: the engine "
                    f"{type(engine).__qualname__} has no method {name!r}, so it can load no "
                    f"adapter; leave the path out if it brings its own"
                )
        self._models = multiplexed(
            max_num_models_per_replica=self._lora.max_num_adapters_per_replica
        )(self._load)

    async def use(self, name: str) -> None:
        """Return when the engine has the adapter; it stays until the current request ends.

        Raises:
            ModelNotFound: There is no such adapter.
            Exception: It cannot be loaded.
        """
        await self._models(f"{self._model_id}:{name}")

    async def close(self) -> None:
        """Unload all of them."""
        await self._models.close()

    async def _load(self, model_id: str) -> _Loaded:
        name = model_id.removeprefix(f"{self._model_id}:")
        path = await self._path_of(name)
        await self._engine.load_adapter(name, path)
        _LOGGER.info("adapter %s of %s is loaded", name, self._model_id)
        return _Loaded(self._engine, name)

    async def _path_of(self, name: str) -> str:
        # Names come from clients: they may not lead out of the folder.
        if not name or name.startswith(".") or any(each in name for each in "/\\\0"):
            raise ModelNotFound(f"{self._model_id}:{name}")
        folder = self._lora.dynamic_lora_loading_path
        assert folder is not None, "there is a folder"
        source = f"{folder}/{name}"
        path = await fetched(
            source, timeout_s=self._lora.download_timeout_s, tries=self._lora.max_download_tries
        )
        if not is_remote(source) and not _is_folder(path):
            raise ModelNotFound(f"{self._model_id}:{name}")
        return path


def _is_folder(path: str) -> bool:
    return Path(path).is_dir()


def names_in(folder: str | None) -> list[str]:
    """Return the names of the adapters in a folder of this machine, in order."""
    if folder is None or is_remote(folder) or not (place := Path(folder)).is_dir():
        return []
    return sorted(each.name for each in place.iterdir() if each.is_dir() and each.name[0] != ".")
