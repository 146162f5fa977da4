"""The arguments of the builders of applications: models, and the class with the Python routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pyserve.llm.config import LLMConfig, Written
from pyserve.llm.engine_names import imported

NO_TRANSFER = "engine_kwargs.kv_transfer_config is missing, which says how blocks travel"


def _config(value: object) -> object:
    """Read a YAML file if the value is a path; pydantic reads all other values."""
    return LLMConfig.from_file(value) if isinstance(value, str) else value


Config = Annotated[LLMConfig, BeforeValidator(_config)]


def _ingress_class(value: Any) -> Any:
    from pyserve.llm.ingress import OpenAiIngress

    found = imported("ingress_cls", value) if isinstance(value, str) else value
    if found is None:
        return OpenAiIngress
    if not isinstance(found, type) or not issubclass(found, OpenAiIngress):
        raise ValueError(f"{found!r} is no subclass of pyserve.llm.ingress.OpenAiIngress")
    return found


class IngressClsConfig(Written):
    """Which class has the routes.

    Attributes:
        ingress_cls: ``OpenAiIngress``, a subclass of it, or the import path of one. Its
            constructor takes ``llm_deployments``, ``model_cards``, ``lora_paths`` and the others.
        ingress_extra_kwargs: The others.
    """

    ingress_cls: Annotated[Any, BeforeValidator(_ingress_class)] = Field(
        default=None, validate_default=True
    )
    ingress_extra_kwargs: dict[str, Any] | None = Field(default_factory=dict)


class _IngressArgs(Written):
    """The arguments of every builder.

    Attributes:
        ingress_cls_config: Which class has the routes.
        ingress_deployment_config: Options of its deployment.
    """

    ingress_cls_config: IngressClsConfig = Field(default_factory=IngressClsConfig)
    ingress_deployment_config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("ingress_deployment_config", mode="before")
    @classmethod
    def _none_is_empty(cls, value: object) -> object:
        return {} if value is None else value


class LLMServingArgs(_IngressArgs):
    """Several models of one application.

    Attributes:
        llm_configs: The models: objects, mappings, or paths of YAML files; at least one, and no id
            twice.
    """

    if TYPE_CHECKING:
        # Parts may be mappings as well, which checkers would refuse.
        def __init__(self, **fields: Any) -> None: ...

    llm_configs: list[Config] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_ids(self) -> Self:
        ids = [each.model_id for each in self.llm_configs]
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ValueError(f"llm_configs has the model_id {twice[0]!r} twice; ids are unique")
        return self


class DPOpenAiServingArgs(_IngressArgs):
    """One model whose replicas are data parallel groups.

    Attributes:
        llm_config: The model.
    """

    if TYPE_CHECKING:
        # Parts may be mappings as well, which checkers would refuse.
        def __init__(self, **fields: Any) -> None: ...

    llm_config: Config


class PDServingArgs(_IngressArgs):
    """One model whose prefill and decode are apart.

    Attributes:
        prefill_config, decode_config: The model, as each of both runs it.
    """

    if TYPE_CHECKING:
        # Parts may be mappings as well, which checkers would refuse.
        def __init__(self, **fields: Any) -> None: ...

    prefill_config: Config
    decode_config: Config

    @model_validator(mode="after")
    def _check_both(self) -> Self:
        prefill, decode = self.prefill_config, self.decode_config
        if prefill.model_id != decode.model_id:
            raise ValueError(
                f"prefill_config has the model_id {prefill.model_id!r} and decode_config "
                f"{decode.model_id!r}; both are one model"
            )
        if prefill.lora_config != decode.lora_config:
            raise ValueError("prefill_config and decode_config have different lora_configs")
        for name, each in (("prefill_config", prefill), ("decode_config", decode)):
            if each.engine_kwargs.get("kv_transfer_config") is None:
                raise ValueError(f"{name}: {NO_TRANSFER}")
        return self
