"""``LLMConfig`` and what it holds, as pydantic models with the names of Ray Serve LLM.

They describe a model, which engine runs it and how it is deployed; ``builders`` makes applications
from them. Wrong and unsupported values are rejected here, with the name of their field.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    PrivateAttr,
    field_validator,
    model_validator,
)

from pyserve.config import DeploymentOptions
from pyserve.llm.callbacks import CallbackConfig
from pyserve.llm.engine_names import checked_engine, imported
from pyserve.llm.experimental import checked_experiments
from pyserve.llm.fetching import SCHEMES, is_remote

_NO_TPU = "no launcher of pyserve places TPUs; use accelerator kinds 'cpu' and 'gpu'"
# Ray Serve LLM takes the one for the other.
_ACCELERATORS = {"A10": "A10G"}
_IN_PLACEMENT = "write placement_group_config of the LLMConfig"


class Written(BaseModel):
    """A configuration as somebody writes it: unknown names are refused."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    @classmethod
    def parse_yaml(cls, file: str | bytes | IO[str] | IO[bytes]) -> Self:
        """Read the configuration from YAML.

        Args:
            file: The text, or an open file.

        Raises:
            ValueError: It does not fit.
        """
        return cls.model_validate(yaml.safe_load(file))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read the configuration from a YAML file.

        Raises:
            OSError: It cannot be read.
            ValueError: It does not fit.
        """
        with Path(path).open(encoding="utf-8") as file:
            return cls.parse_yaml(file)


class ExtraFiles(Written):
    """Files that a replica copies besides the model.

    Attributes:
        bucket_uri: Where they are.
        destination_path: The folder of the replica's machine that they are copied to.
    """

    bucket_uri: str
    destination_path: str


class CloudMirrorConfig(Written):
    """A copy of a model's files in an object store.

    Attributes:
        bucket_uri: The folder, such as ``s3://bucket/model``.
        extra_files: What is copied besides it.
    """

    bucket_uri: str | None = None
    extra_files: list[ExtraFiles] = Field(default_factory=list)

    @field_validator("bucket_uri")
    @classmethod
    def _check_uri(cls, value: str | None) -> str | None:
        if value is not None and not is_remote(value):
            raise ValueError(f"{value!r} is no address that begins with {SCHEMES}")
        return value

    @property
    def storage_type(self) -> str | None:
        """``"s3"``, ``"gcs"``, ``"abfss"`` or ``"azure"``, by the address."""
        if self.bucket_uri is None:
            return None
        scheme = self.bucket_uri.partition(":")[0]
        return "gcs" if scheme == "gs" else scheme


class ModelLoadingConfig(Written):
    """Which model, and where its files are.

    Attributes:
        model_id: The name that clients give as ``model``.
        model_source: A Hugging Face id, a path, an address of an object store, or a
            ``CloudMirrorConfig``; ``None``: the Hugging Face id is ``model_id``.
        tokenizer_source: Where the tokenizer is; ``None``: with the model.
    """

    if TYPE_CHECKING:
        # Parts may be mappings as well, which checkers would refuse.
        def __init__(self, **fields: Any) -> None: ...

    model_id: str = Field(min_length=1)
    model_source: str | CloudMirrorConfig | None = None
    tokenizer_source: str | None = None


class LoraConfig(Written):
    """Adapters of the model, which clients name ``model_id:adapter``.

    Attributes:
        dynamic_lora_loading_path: The folder that has one folder for each adapter: a path, or an
            address of an object store.
        max_num_adapters_per_replica: How many a replica keeps; those used longest ago go first.
        download_timeout_s: How long it may take to fetch one; ``None``: as long as it takes.
        max_download_tries: How often that is tried.
    """

    dynamic_lora_loading_path: str | None = None
    max_num_adapters_per_replica: PositiveInt = 16
    download_timeout_s: float | None = Field(default=30.0, gt=0)
    max_download_tries: PositiveInt = 3

    @field_validator("dynamic_lora_loading_path")
    @classmethod
    def _check_path(cls, value: str | None) -> str | None:
        if value is not None and "://" in value and not is_remote(value):
            raise ValueError(f"{value!r} is neither a path nor an address that begins {SCHEMES}")
        return value if value is None else value.rstrip("/")


def _read_accelerator(value: object) -> object:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    if kind == "tpu":
        raise ValueError(f"kind 'tpu' cannot be had: {_NO_TPU}")
    return value


class AcceleratorConfig(Written):
    """What computes: ``cpu`` or ``gpu``."""

    kind: Literal["cpu", "gpu"]


class PlacementGroupConfig(Written):
    """The resources that the workers of an engine, all on one machine, reserve there.

    Attributes:
        bundle_per_worker: Resources of each worker; the number of workers is the tensor parallel
            size times the pipeline parallel size.
        bundles: The resources of each worker separately, instead.
        strategy: ``"PACK"`` or ``"STRICT_PACK"``, which mean the same here.
    """

    bundle_per_worker: dict[str, Annotated[float, Field(ge=0)]] | None = None
    bundles: list[dict[str, Annotated[float, Field(ge=0)]]] | None = Field(
        default=None, min_length=1
    )
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.bundle_per_worker is None) == (self.bundles is None):
            raise ValueError("write either bundle_per_worker or bundles")
        if self.amount_of("TPU"):
            raise ValueError(f"bundles with TPUs cannot be had: {_NO_TPU}")
        if self.strategy.endswith("SPREAD"):
            raise ValueError(
                f"strategy {self.strategy!r} cannot be had: the workers of an engine run on the "
                f"machine of its replica; write 'PACK', or leave it out"
            )
        return self

    def amount_of(self, name: str) -> float:
        """Return how much of a resource the written bundles have together."""
        found = self.bundles or [self.bundle_per_worker or {}]
        return sum(each.get(name, 0.0) for each in found)

    def total(self, workers: int) -> dict[str, float]:
        """Return what an engine with so many workers takes of its machine."""
        bundles = self.bundles or [self.bundle_per_worker or {}] * workers
        names = sorted({name for each in bundles for name in each})
        return {name: sum(each.get(name, 0.0) for each in bundles) for name in names}


class LLMConfig(Written):
    """One model with its engine and its deployment.

    Attributes:
        model_loading_config: Which model; a ``ModelLoadingConfig`` or a mapping.
        llm_engine: Who runs it: ``"vLLM"``, ``"SGLang"``, ``"transformers"``, ``"llama.cpp"``,
            ``"openai"`` (a server elsewhere), ``"simulated"``, or a ``pyserve.llm.Engine``, as a
            class or as its import path.
        engine_kwargs: The engine's own arguments.
        runtime_env: Of the replicas: ``env_vars``, ``working_dir``, ``pip``.
        accelerator_type: The kind of GPU, such as ``"A10G"``.
        accelerator_config: Whether it runs on a GPU; ``None``: as the engine usually does.
        placement_group_config: The resources that its workers reserve.
        lora_config: Its adapters.
        deployment_config: Options of the deployment, as ``@pyserve.deployment`` takes them.
        server_cls: A subclass of ``LLMServer`` that is deployed in its place, or its import path.
        experimental_configs: See ``pyserve.llm.experimental``.
        log_engine_metrics: Whether the engine's own metrics are wanted.
        callback_config: The hooks that run around the start of the engine.
    """

    if TYPE_CHECKING:
        # Parts may be mappings as well, which checkers would refuse.
        def __init__(self, **fields: Any) -> None: ...

    runtime_env: dict[str, Any] | None = None
    model_loading_config: ModelLoadingConfig
    llm_engine: Annotated[Any, BeforeValidator(checked_engine)] = Field(
        default="vLLM", json_schema_extra={"type": "string"}
    )
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    accelerator_type: str | None = Field(default=None, min_length=1)
    accelerator_config: Annotated[AcceleratorConfig | None, BeforeValidator(_read_accelerator)] = (
        None
    )
    placement_group_config: PlacementGroupConfig | None = None
    lora_config: LoraConfig | None = None
    deployment_config: dict[str, Any] = Field(default_factory=dict)
    server_cls: Any = None
    experimental_configs: Annotated[dict[str, Any], BeforeValidator(checked_experiments)] = Field(
        default_factory=dict
    )
    log_engine_metrics: bool | None = True
    callback_config: CallbackConfig = Field(default_factory=CallbackConfig)
    _is_hidden: bool = PrivateAttr(default=False)

    @field_validator("accelerator_type")
    @classmethod
    def _check_accelerator_type(cls, value: str | None) -> str | None:
        if value is not None and value.upper().startswith("TPU"):
            raise ValueError(f"{value!r} cannot be had: {_NO_TPU}")
        return value if value is None else _ACCELERATORS.get(value, value)

    @field_validator("deployment_config")
    @classmethod
    def _check_deployment(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name.startswith("placement_group_"):
                raise ValueError(f"{name} cannot be set here; {_IN_PLACEMENT}")
        DeploymentOptions.of(value)
        return value

    @field_validator("server_cls")
    @classmethod
    def _load_server(cls, value: Any) -> Any:
        found = imported("server_cls", value) if isinstance(value, str) else value
        if found is not None and not callable(getattr(found, "get_deployment_options", None)):
            raise ValueError(f"{found!r} is no pyserve.llm.deployment.LLMServer")
        return found

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.log_engine_metrics and self.engine_kwargs.get("disable_log_stats"):
            raise ValueError(
                "engine_kwargs.disable_log_stats turns off what log_engine_metrics asks for; set "
                "log_engine_metrics=False"
            )
        if self.accelerator_type is not None and self.accelerator_kind == "cpu":
            raise ValueError(
                f"accelerator_type={self.accelerator_type!r} is a GPU, but accelerator_config or "
                f"placement_group_config asks for processors only; leave one of them out"
            )
        if self.lora_config is not None and ":" in self.model_id:
            raise ValueError(
                f"model_id={self.model_id!r} has a colon, after which clients name an adapter; "
                f"choose an id without one, or leave lora_config out"
            )
        return self

    @property
    def model_id(self) -> str:
        """The name that clients give as ``model``."""
        return self.model_loading_config.model_id

    @property
    def model_source(self) -> str:
        """Where the model's files are, as it was written."""
        source = self.model_loading_config.model_source
        if isinstance(source, CloudMirrorConfig):
            return source.bucket_uri or self.model_id
        return source or self.model_id

    @property
    def max_request_context_length(self) -> int | None:
        """How many tokens prompt and completion may have, where it is written."""
        found: int | None = self.engine_kwargs.get("max_model_len")
        return found

    @property
    def accelerator_kind(self) -> Literal["cpu", "gpu"] | None:
        """The configured kind of accelerator; ``None``: not configured."""
        if self.accelerator_config is not None:
            return self.accelerator_config.kind
        if self.placement_group_config is not None:
            return "gpu" if self.placement_group_config.amount_of("GPU") else "cpu"
        return None if self.accelerator_type is None else "gpu"

    @property
    def is_hidden(self) -> bool:
        """Whether the ingress leaves the model to routes of Python."""
        return self._is_hidden

    def hidden(self) -> Self:
        """Return a copy whose engine the ingress does not serve by itself."""
        copy = self.model_copy()
        copy._is_hidden = True  # noqa: SLF001  # Of this class.
        return copy

    def update_engine_kwargs(self, **kwargs: Any) -> None:
        """Set arguments of the engine, before it is made."""
        self.engine_kwargs.update(kwargs)
