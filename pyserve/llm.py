"""``ray.serve.llm``: builders for language models, which come with a later release."""

from typing import Any

from pyserve.api.deployment import Application
from pyserve.later import Later, refused

_INSTEAD = "serve the engine from a deployment of your own, as docs/guide/streaming.md shows"


class LLMConfig(Later):
    """The configuration of one language model."""

    instead = _INSTEAD


class LLMServingArgs(Later):
    """Several models behind one door."""

    instead = _INSTEAD


class ModelLoadingConfig(Later):
    """Where a model's weights are."""

    instead = _INSTEAD


class CloudMirrorConfig(Later):
    """A copy of the weights in an object store."""

    instead = _INSTEAD


class LoraConfig(Later):
    """Adapters of a model."""

    instead = _INSTEAD


class LLMServer(Later):
    """The deployment around an engine."""

    instead = _INSTEAD


def build_llm_deployment(*_args: Any, **_kwargs: Any) -> Application:
    """Make a deployment of one model; see ``LLMServer``.

    Raises:
        NotYetSupported: Always.
    """
    refused("pyserve.llm.build_llm_deployment", _INSTEAD)


def build_openai_app(*_args: Any, **_kwargs: Any) -> Application:
    """Make an application with the doors of OpenAI's API.

    Raises:
        NotYetSupported: Always.
    """
    refused("pyserve.llm.build_openai_app", _INSTEAD)


def build_pd_openai_app(*_args: Any, **_kwargs: Any) -> Application:
    """Make one whose prefill and decode are apart.

    Raises:
        NotYetSupported: Always.
    """
    refused("pyserve.llm.build_pd_openai_app", _INSTEAD)


def build_dp_deployment(*_args: Any, **_kwargs: Any) -> Application:
    """Make a deployment whose replicas are one data parallel group.

    Raises:
        NotYetSupported: Always.
    """
    refused("pyserve.llm.build_dp_deployment", _INSTEAD)


def build_dp_openai_app(*_args: Any, **_kwargs: Any) -> Application:
    """Make an application of such a group.

    Raises:
        NotYetSupported: Always.
    """
    refused("pyserve.llm.build_dp_openai_app", _INSTEAD)


__all__ = [
    "CloudMirrorConfig",
    "LLMConfig",
    "LLMServer",
    "LLMServingArgs",
    "LoraConfig",
    "ModelLoadingConfig",
    "build_dp_deployment",
    "build_dp_openai_app",
    "build_llm_deployment",
    "build_openai_app",
    "build_pd_openai_app",
]
