"""The YAML of a mesh as pydantic models, with the names of Ray Serve.

It, ``files`` and ``driver.instance`` import pydantic, on first use: ``pyserve.schema`` and
commands. What a value may be is decided where it is for code, by the options of
``pyserve.config``: a model hands them what was written, and passes their refusal on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pyserve.config.declared import declared
from pyserve.config.http import (
    DEFAULT_GRPC_PORT,
    DEFAULT_HTTP_PORT,
    HTTPOptions,
    ProxyLocation,
    check_location,
    check_route_prefix,
    gRPCOptions,
)
from pyserve.config.launchers import LauncherConfig
from pyserve.config.logging_config import ControllerOptions, LoggingConfig
from pyserve.config.options import (
    OLDER_OPTIONS,
    OPTIONS,
    DeploymentOptions,
    check_name,
    check_replicas,
    inner_options,
)
from pyserve.config.parts import BackpressureConfig, BatchingConfig, Part, Resources, hint
from pyserve.config.placement import GangSchedulingConfig
from pyserve.config.routing import RequestRouterConfig
from pyserve.config.scaling import AutoscalingConfig
from pyserve.config.telemetry import TracingConfig
from pyserve.config.validation import refuse
from pyserve.errors import OptionError

# What Ray Serve had in files for one application.
_OF_THE_INGRESS = ("host", "port")

_PARTS: dict[str, type[Part]] = {
    "autoscaling_config": AutoscalingConfig,
    "backpressure_config": BackpressureConfig,
    "batching_config": BatchingConfig,
    "gang_scheduling_config": GangSchedulingConfig,
    "request_router_config": RequestRouterConfig,
    "resources": Resources,
}
# Names that are none of the constructor.
_ALSO_WRITTEN = {"batching_config": ("batch_wait_timeout_s",)}

Logging = Annotated[LoggingConfig, BeforeValidator(LoggingConfig.read)]


def _location(value: object) -> ProxyLocation:
    return check_location("proxy_location", value)


Launcher = Annotated[
    LauncherConfig,
    BeforeValidator(LauncherConfig.read),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            ]
        }
    ),
]


class _Written(BaseModel):
    """Whatever a file has under one name: unknown names are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, value: object) -> object:
        """Refuse unknown names all at once, each in its place and with what may be meant."""
        if isinstance(value, Mapping):
            known = cls._known()
            _refuse_all(
                cls.__name__,
                {
                    name: f"there is no {name!r}; {hint(str(name), known, cls._inner())}"
                    for name in value
                    if name not in known
                },
                value,
            )
        return value

    @classmethod
    def _known(cls) -> Collection[str]:
        return cls.model_fields

    @classmethod
    def _inner(cls) -> Mapping[str, str]:
        return {}

    def written(self) -> dict[str, Any]:
        """Return what was written, without the defaults."""
        return self.model_dump(exclude_unset=True)


def _with_all_options(schema: dict[str, Any]) -> None:
    """Add to the schema, for editors, options that are not model fields, and the names in parts."""
    schema["additionalProperties"] = False
    properties = schema["properties"]
    properties.update({name: OPTIONS[name].schema() for name in _OTHER_OPTIONS})
    properties.update({name: {} for name in OLDER_OPTIONS})
    for name, part in _PARTS.items():
        names = (*part.__dataclass_fields__, *_ALSO_WRITTEN.get(name, ()))
        known = declared(part)
        # These apply to mappings only. The values are checked by the command.
        properties[name] |= {
            "properties": {each: known[each].schema() if each in known else {} for each in names},
            "additionalProperties": False,
        }
    properties["num_replicas"]["anyOf"] = [
        {"type": "integer"},
        {"const": "auto"},
        {"type": "null"},
    ]


class RayActorOptionsSchema(_Written):
    """What one replica takes of a machine; see the option ``resources``."""

    runtime_env: dict[str, Any] = Field(default_factory=dict)
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: float | None = None
    resources: dict[str, float] = Field(default_factory=dict)
    accelerator_type: str | None = None
    label_selector: dict[str, str] | None = None
    fallback_strategy: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        written = self.written()
        given = {name: value for name, value in written.items() if value is not None}
        given.pop("runtime_env", None)
        Resources.of("ray_actor_options", given)
        return self


class DeploymentSchema(_Written):
    """One deployment of an application: the options that replace those in the code.

    Every option of the reference is known, beside those that Ray Serve has, which are fields.
    ``route_prefix`` is none of them: older files have it here, see ``ServeApplicationSchema``.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra=_with_all_options)

    name: str
    route_prefix: str | None = None
    num_replicas: int | str | None = None
    max_ongoing_requests: int | None = None
    max_queued_requests: int | None = None
    max_queued_cost: float | None = None
    backpressure_config: Any = None
    user_config: Any = None
    autoscaling_config: Any = None
    graceful_shutdown_wait_loop_s: float | None = None
    graceful_shutdown_timeout_s: float | None = None
    health_check_period_s: float | None = None
    health_check_timeout_s: float | None = None
    ray_actor_options: RayActorOptionsSchema | None = None
    placement_group_bundles: list[dict[str, float]] | None = None
    placement_group_strategy: str | None = None
    placement_group_bundle_label_selector: list[dict[str, str]] | None = None
    max_replicas_per_node: int | None = None
    logging_config: Logging | None = None
    request_router_config: Any = None
    gang_scheduling_config: Any = None
    deployment_actors: Any = None
    rolling_update_percentage: float | None = None
    max_surge_percent: int | None = None

    @classmethod
    def _known(cls) -> Collection[str]:
        return {*cls.model_fields, *_OTHER_OPTIONS, *OLDER_OPTIONS}

    @classmethod
    def _inner(cls) -> Mapping[str, str]:
        return inner_options()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.route_prefix is not None:
            check_route_prefix("route_prefix", self.route_prefix)
        given = self.options()
        # One by one first: a refusal is told where its option stands.
        _refuse_all(type(self).__name__, dict(_refusals(given)), given)
        DeploymentOptions.of(given)
        return self

    def options(self) -> dict[str, Any]:
        """Return the options that were written, as ``Deployment.options`` takes them."""
        written = self.written()
        written.pop("route_prefix", None)
        if (actor := written.get("ray_actor_options")) is not None:
            # ``None`` means that the option was not written.
            written["ray_actor_options"] = {
                name: value for name, value in actor.items() if value is not None
            }
        return written


class ServeApplicationSchema(_Written):
    """One application: where its code is, and what is said of its deployments.

    Older files have the prefix at a deployment; it is the application's where that has none.
    """

    name: str = "default"
    route_prefix: str | None = "/"
    import_path: str
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = DEFAULT_HTTP_PORT
    deployments: list[DeploymentSchema] = Field(default_factory=list)
    autoscaling_policy: dict[str, Any] | None = None
    args: dict[str, Any] = Field(default_factory=dict)
    logging_config: Logging | None = None
    external_scaler_enabled: bool = False
    _moved: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_name("name", self.name)
        self._move_prefixes()
        if self.route_prefix is not None:
            check_route_prefix("route_prefix", self.route_prefix)
        module, separator, attribute = self.import_path.partition(":")
        if ":" in attribute or not module or (separator and not attribute):
            raise refuse("import_path", self.import_path, "'module:attribute'")
        if not separator and not all(self.import_path.rpartition(".")):
            raise refuse("import_path", self.import_path, "'module:attribute'")
        _check_once("deployments", [each.name for each in self.deployments])
        return self

    def _move_prefixes(self) -> None:
        """Take the prefix from where older files have it, and note what somebody should change."""
        is_told = "route_prefix" in self.model_fields_set
        older = [each for each in self.deployments if "route_prefix" in each.model_fields_set]
        found = {each.route_prefix for each in older if each.route_prefix is not None}
        if len(found) > 1 and not is_told:
            what = "one prefix, which is the application's: write it beside import_path"
            raise refuse("route_prefix of deployments", sorted(found), what)
        if found and not is_told:
            (self.route_prefix,) = found
        counts = "its own one counts" if is_told else f"it has {self.route_prefix!r} now"
        self._moved = tuple(
            f"route_prefix of deployment {each.name!r} is the application's today: write it beside "
            f"import_path; {counts}"
            for each in older
        )

    @property
    def moved(self) -> tuple[str, ...]:
        """Lines on what the file has at places where it stood in older ones."""
        return self._moved

    @property
    def deployment_names(self) -> list[str]:
        """The names of the deployments that the file has."""
        return [each.name for each in self.deployments]


class HTTPOptionsSchema(_Written):
    """The ingress's side of plain HTTP; see ``HTTPOptions``."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_HTTP_PORT
    root_path: str = ""
    request_timeout_s: float | None = None
    keep_alive_timeout_s: float | None = None
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile_password: str | None = None
    ssl_ca_certs: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        HTTPOptions.of("http_options", self.written())
        return self


class gRPCOptionsSchema(_Written):  # noqa: N801  # Ray Serve's name.
    """The ingress's side of gRPC; see ``gRPCOptions``."""

    port: int = DEFAULT_GRPC_PORT
    grpc_servicer_functions: list[str] = Field(default_factory=list)
    request_timeout_s: float | None = None
    enable_reflection: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        gRPCOptions.of("grpc_options", self.written())
        return self


class ServeDeploySchema(_Written):
    """A whole file: the ingress, and every application that the mesh should run."""

    proxy_location: Annotated[ProxyLocation, BeforeValidator(_location)] = ProxyLocation.EveryNode
    launcher: Launcher | None = None
    http_options: HTTPOptionsSchema = Field(default_factory=HTTPOptionsSchema)
    grpc_options: gRPCOptionsSchema = Field(default_factory=gRPCOptionsSchema)
    controller_options: ControllerOptions | None = None
    logging_config: Logging | None = None
    tracing_config: TracingConfig | None = None
    applications: list[ServeApplicationSchema]
    target_capacity: float | None = Field(default=None, ge=0, le=100)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for each in self.applications:
            for name in _OF_THE_INGRESS:
                if name in each.model_fields_set:
                    raise OptionError(
                        f"application {each.name!r} has {name!r}, which all applications of a "
                        f"mesh share; write it under http_options"
                    )
        _check_once("applications", [each.name for each in self.applications])
        prefixes = [each.route_prefix for each in self.applications if each.route_prefix]
        _check_once("route_prefix of applications", prefixes)
        return self

    @staticmethod
    def get_empty_schema_dict() -> Mapping[str, object]:
        """Return the file of a mesh that runs nothing."""
        return {"applications": []}


def _check_once(field: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refuse(field, twice, "each name once")


# Options that a deployment has beside the fields of its model.
_OTHER_OPTIONS = tuple(
    item.name
    for item in fields(DeploymentOptions)
    if item.name not in DeploymentSchema.model_fields
)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **ServeDeploySchema.model_json_schema(),
        "title": "Applications of a pyserve mesh",
    }


def _refusals(options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        try:
            check_replicas({name: value})
            DeploymentOptions.of({name: value})
        except OptionError as error:
            yield name, str(error)


def _refuse_all(title: str, refused: Mapping[str, str], value: Mapping[str, Any]) -> None:
    if refused:
        raise ValidationError.from_exception_data(
            title,
            [
                InitErrorDetails(
                    # The text may have braces, which the template's own are not.
                    type=PydanticCustomError("refused", "{text}", {"text": text}),
                    loc=(str(name),),
                    input=value[name],
                )
                for name, text in refused.items()
            ],
        )
