"""Applications of language models, with the names of Ray Serve LLM.

The ingress serves OpenAI's API for every application that has an engine, so an engine alone is an
application. An application with several models has a root that holds their handles.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyserve.api.code import unwrap
from pyserve.api.deployment import Application, deployment
from pyserve.api.ingress import ingress_of
from pyserve.later import refused
from pyserve.llm.cards import to_model_metadata
from pyserve.llm.config import LLMConfig
from pyserve.llm.deployment import DPServer, LLMServer, PDDecodeServer
from pyserve.llm.deployment_options import deployment_name
from pyserve.llm.ingress import OpenAiIngress, make_fastapi_ingress, overrides_routes
from pyserve.llm.serving_args import (
    DPOpenAiServingArgs,
    IngressClsConfig,
    LLMServingArgs,
    PDServingArgs,
)

if TYPE_CHECKING:
    from pyserve.llm.serving_args import _IngressArgs

_LOGGER = logging.getLogger(__name__)


def build_llm_deployment(
    llm_config: LLMConfig,
    *,
    name_prefix: str | None = None,
    bind_kwargs: Mapping[str, Any] | None = None,
    override_serve_options: Mapping[str, Any] | None = None,
    deployment_cls: type | None = None,
) -> Application:
    """Return the deployment of one model, bound; it is an application by itself.

    Args:
        llm_config: The model; a mapping will do.
        name_prefix: Of the deployment's name; ``None``: the name of its class.
        bind_kwargs: More arguments for the class.
        override_serve_options: Options that replace those of the configuration.
        deployment_cls: The class; ``None``: the ``server_cls`` of the configuration, or
            ``LLMServer``.

    Raises:
        ValueError: Something in the configuration is not allowed; the text has its name.
    """
    config = LLMConfig.model_validate(llm_config)
    cls: Any = unwrap(deployment_cls or config.server_cls or LLMServer)
    options = cls.get_deployment_options(config)
    name = options.get("name") or config.model_id
    options["name"] = deployment_name(
        f"{cls.__name__}:" if name_prefix is None else name_prefix, name
    )
    options |= override_serve_options or {}
    app: Application = deployment(cls, **options).bind(llm_config=config, **(bind_kwargs or {}))
    return app


def build_openai_app(llm_serving_args: LLMServingArgs | Mapping[str, Any]) -> Application:
    """Return an application of one or several models, which serves OpenAI's API.

    For files: ``import_path: pyserve.llm:build_openai_app`` with ``args: {llm_configs: [...]}``.

    Args:
        llm_serving_args: An ``LLMServingArgs``, or a mapping of its fields.

    Raises:
        ValueError: Something in it is not allowed; the text has its name.
    """
    args = LLMServingArgs.model_validate(llm_serving_args)
    return _application(args, args.llm_configs, None)


def build_dp_deployment(
    llm_config: LLMConfig,
    *,
    name_prefix: str | None = None,
    bind_kwargs: Mapping[str, Any] | None = None,
    override_serve_options: Mapping[str, Any] | None = None,
    deployment_cls: type | None = None,
) -> Application:
    """Return the deployment of a model whose replicas are data parallel groups.

    Args:
        llm_config: The model; see ``DPServer``.
        name_prefix: See ``build_llm_deployment``, and so the others.
        bind_kwargs: More arguments for the class.
        override_serve_options: Options that replace those of the configuration.
        deployment_cls: The class; ``None``: ``DPServer``.

    Raises:
        ValueError: Something in the configuration is not allowed; the text has its name.
    """
    return build_llm_deployment(
        llm_config,
        name_prefix=name_prefix,
        bind_kwargs=bind_kwargs,
        override_serve_options=override_serve_options,
        deployment_cls=deployment_cls or DPServer,
    )


def build_dp_openai_app(dp_serving_args: DPOpenAiServingArgs | Mapping[str, Any]) -> Application:
    """Return an application of a model whose replicas are data parallel groups.

    Args:
        dp_serving_args: ``llm_config``, and what ``build_openai_app`` takes besides the models.

    Raises:
        ValueError: Something in it is not allowed; the text has its name.
    """
    args = DPOpenAiServingArgs.model_validate(dp_serving_args)
    return _application(args, [args.llm_config], DPServer)


def build_pd_openai_app(pd_serving_args: PDServingArgs | Mapping[str, Any]) -> Application:
    """Refuse an application whose prefill and decode are apart, after reading its arguments.

    Args:
        pd_serving_args: ``prefill_config``, ``decode_config``, and what ``build_openai_app`` takes
            besides the models.

    Raises:
        ValueError: Something in it is not allowed; the text has its name.
        NotYetSupported: Always, if it fits.
    """
    PDServingArgs.model_validate(pd_serving_args)
    refused("pyserve.llm.build_pd_openai_app", PDDecodeServer.instead)


def _application(
    args: _IngressArgs, given: Sequence[LLMConfig], deployment_cls: type | None
) -> Application:
    chosen: IngressClsConfig = args.ingress_cls_config
    cls = chosen.ingress_cls
    # Python routes that override those of the ingress replace them.
    configs = [each.hidden() if overrides_routes(cls) else each for each in given]
    engines = {
        each.model_id: build_llm_deployment(each, deployment_cls=deployment_cls) for each in configs
    }
    is_plain = cls is OpenAiIngress and not chosen.ingress_extra_kwargs
    if is_plain and len(engines) == 1:
        if args.ingress_deployment_config:
            _LOGGER.warning(
                "ingress_deployment_config has no effect: one model has no deployment in front of "
                "it; its own options are in deployment_config"
            )
        return next(iter(engines.values()))
    options = cls.get_deployment_options(configs)
    if "num_replicas" in args.ingress_deployment_config:
        options.pop("autoscaling_config", None)
    if "autoscaling_config" in args.ingress_deployment_config:
        options.pop("num_replicas", None)
    options |= args.ingress_deployment_config
    has_routes = is_plain or ingress_of(cls) is not None
    target: Any = cls if has_routes else make_fastapi_ingress(cls)
    app: Application = deployment(target, **options).bind(
        llm_deployments=engines,
        model_cards={each.model_id: to_model_metadata(each.model_id, each) for each in configs},
        lora_paths={
            each.model_id: each.lora_config.dynamic_lora_loading_path
            for each in configs
            if each.lora_config is not None
        },
        **(chosen.ingress_extra_kwargs or {}),
    )
    return app


__all__ = [
    "build_dp_deployment",
    "build_dp_openai_app",
    "build_llm_deployment",
    "build_openai_app",
    "build_pd_openai_app",
]
