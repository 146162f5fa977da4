"""The nested parts of the deployment options: batching, backpressure, resources.

Each part is frozen, checks itself when it is made, and has the names and defaults of
``docs/reference``; ``of`` reads it from the mapping that a user wrote.
"""

from __future__ import annotations

import difflib
import enum
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from pyserve.config.validation import (
    check_flag,
    check_integer,
    check_mapping,
    check_number,
    check_seconds,
    check_text,
    check_text_mapping,
    refuse,
)
from pyserve.errors import OptionError, OptionTypeError

# The methods of pydantic's models, for code that was written for Ray Serve's configurations.
#
# Ours are frozen dataclasses, which load in a fraction of the time; what one of them refuses is an
# `OptionError`, and so a `ValueError`, as a `ValidationError` of pydantic is.

# Below, `dict` is a method.
Fields = dict[str, Any]


class ModelMethods:
    """A dataclass whose instances can be written down, read and copied as a model's."""

    @classmethod
    def model_validate(cls, obj: object) -> Self:
        """Return the configuration of a mapping, or ``obj`` if it is one already.

        Raises:
            OptionError: A name is unknown, or a value is not allowed.
        """
        return cls.of(cls.__name__, obj)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Self:
        """Do what ``model_validate`` does with a JSON object.

        Raises:
            ValueError: It is not JSON, or not allowed.
        """
        return cls.model_validate(json.loads(json_data))

    @classmethod
    def of(cls, owner: str, value: object) -> Self:
        """Read the configuration; messages call it ``owner``."""
        raise NotImplementedError

    def model_dump(
        self,
        *,
        mode: str = "python",
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
        exclude_unset: bool = False,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
    ) -> Fields:
        """Return the fields with their values, which ``model_validate`` reads.

        Args:
            mode: ``"json"`` writes enumerations as their values.
            include: Only these fields; ``None``: all.
            exclude: None of these.
            exclude_unset: The same as ``exclude_defaults``: nobody remembers what was written.
            exclude_defaults: No field that has its default.
            exclude_none: No field that is ``None``.
        """
        assert is_dataclass(self)
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        if exclude_unset or exclude_defaults:
            defaults = {each.name: _default(each) for each in fields(self)}
            found = {name: value for name, value in found.items() if value != defaults[name]}
        return {
            name: _plain(value, mode)
            for name, value in found.items()
            if (include is None or name in include)
            and (exclude is None or name not in exclude)
            and not (exclude_none and value is None)
        }

    def model_dump_json(self, *, indent: int | None = None, **options: Any) -> str:
        """Return ``model_dump(mode="json", **options)`` as text.

        Raises:
            TypeError: JSON cannot hold a value, such as a class.
        """
        return json.dumps(self.model_dump(mode="json", **options), indent=indent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, which are checked.

        Args:
            update: The fields that change.
            deep: Without a meaning: nothing of it can be changed.

        Raises:
            TypeError: A name is unknown.
            OptionError: A value is not allowed.
        """
        del deep
        assert is_dataclass(self)
        return replace(self, **(update or {}))

    # As pydantic 1 has them.

    @classmethod
    def parse_obj(cls, obj: object) -> Self:
        """See ``model_validate``."""
        return cls.model_validate(obj)

    @classmethod
    def parse_raw(cls, b: str | bytes) -> Self:
        """See ``model_validate_json``."""
        return cls.model_validate_json(b)

    copy = model_copy
    json = model_dump_json
    dict = model_dump


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(value: object, mode: str) -> object:
    if isinstance(value, ModelMethods):
        return value.model_dump(mode=mode)
    if isinstance(value, enum.Enum):
        return value.value if mode == "json" else value
    if isinstance(value, Mapping):
        return {key: _plain(each, mode) for key, each in value.items()}
    if isinstance(value, list | tuple):
        plain = [_plain(each, mode) for each in value]
        return tuple(plain) if isinstance(value, tuple) and mode != "json" else plain
    return value


_NOTHING: Mapping[str, str] = MappingProxyType({})
# Of one deployment. Far more than run on a machine; a larger number is a slip.
REPLICAS_MAX = 10_000


def check_names(
    owner: str, given: Iterable[str], known: Iterable[str], inner: Mapping[str, str] = _NOTHING
) -> None:
    """Raise ``OptionTypeError`` for the first name of ``given`` that ``known`` lacks.

    Args:
        owner: What has the options.
        given: What somebody has written.
        known: What there is.
        inner: Names that belong in an option, and in which, quoted.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            raise OptionTypeError(f"{owner} has no option {name!r}; {hint(name, names, inner)}")


def hint(name: str, known: Collection[str], inner: Mapping[str, str] = _NOTHING) -> str:
    """Return what may be meant by a name that there is not, and where it belongs."""
    if name in inner:
        return f"it belongs in {inner[name]}, as {{{name!r}: ...}}"
    near = difflib.get_close_matches(name, [*known, *inner], n=1)
    if not near:
        return f"known: {', '.join(sorted(known))}"
    of_part = "" if near[0] in known else f" in {inner[near[0]]}"
    return f"did you mean {near[0]!r}{of_part}?"


@dataclass(frozen=True, kw_only=True)
class Part(ModelMethods):
    """A frozen group of options that is written as a mapping or as an object."""

    @classmethod
    def of(cls, owner: str, value: object) -> Self:
        """Read the part from a mapping, or return it if ``value`` is one already."""
        if isinstance(value, cls):
            return value
        given = cls._rename(check_mapping(owner, value))
        # Those of the constructor: older names are among them.
        check_names(owner, given, cls.__dataclass_fields__)
        return cls(**given)

    @classmethod
    def known(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Return what of ``given``, which another release wrote, this one knows."""
        found = cls._rename(dict(given))
        return {name: each for name, each in found.items() if name in cls.__dataclass_fields__}

    @classmethod
    def _rename(cls, given: dict[str, object]) -> dict[str, object]:
        return given


@dataclass(frozen=True, kw_only=True)
class BackpressureConfig(Part):
    """How plain HTTP is answered when no more requests may wait; gRPC: RESOURCE_EXHAUSTED.

    Attributes:
        status_code: 503 or 429.
        retry_after_s: what ``Retry-After`` says; ``None``: the router's own estimate of when
            there is room again, at least 1.
    """

    status_code: int = 503
    retry_after_s: float | None = None

    def __post_init__(self) -> None:
        if self.status_code not in (503, 429) or isinstance(self.status_code, float):
            raise refuse("backpressure_config.status_code", self.status_code, "503 or 429")
        if self.retry_after_s is not None:
            check_seconds("backpressure_config.retry_after_s", self.retry_after_s)


@dataclass(frozen=True, kw_only=True)
class BatchingConfig(Part):
    """A batcher in front of methods that have no decorator.

    Attributes:
        max_batch_size: items in a batch, at least 1.
        timeout_s: how long the first item may wait for company; ``"auto"`` learns it.
        stride_s: 0 dispatches at once; above, only at ticks of this length.
        allow_small_batch: whether a batch that is not full may leave at the timeout.
        max_concurrent_batches: batches that run at once in a replica.
        methods: names of the methods; empty means ``__call__``.
    """

    max_batch_size: int = 32
    timeout_s: float | Literal["auto"] = 0.1
    stride_s: float = 0.0
    allow_small_batch: bool = True
    max_concurrent_batches: int = 1
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_integer("batching_config.max_batch_size", self.max_batch_size, minimum=1)
        if self.timeout_s != "auto":
            check_seconds("batching_config.timeout_s", self.timeout_s)
        check_seconds("batching_config.stride_s", self.stride_s)
        check_flag("batching_config.allow_small_batch", self.allow_small_batch)
        check_integer(
            "batching_config.max_concurrent_batches", self.max_concurrent_batches, minimum=1
        )
        for method in self.methods:
            check_text("batching_config.methods", method, "a list of method names")

    @classmethod
    def _rename(cls, given: dict[str, object]) -> dict[str, object]:
        if "batch_wait_timeout_s" in given:
            if "timeout_s" in given:
                raise OptionError(
                    "batching_config has both timeout_s and batch_wait_timeout_s, which are two "
                    "names of one option; keep timeout_s"
                )
            given["timeout_s"] = given.pop("batch_wait_timeout_s")
        methods = given.get("methods")
        if methods is None:
            given.pop("methods", None)
        elif isinstance(methods, list | tuple):
            given["methods"] = tuple(methods)
        else:
            raise refuse("batching_config.methods", methods, "a list of method names", list)
        return given


@dataclass(frozen=True, kw_only=True)
class Resources(Part):
    """What one replica takes of a machine; the launcher reserves it.

    Attributes:
        num_cpus: processors; ``None`` reserves none, and counts as one for the variables that
            bound the threads of numerical libraries.
        num_gpus: graphics devices: a share of one, or whole ones.
        memory: bytes.
        accelerator_type: what kind of device.
        resources: amounts of what the operator declared by name.
        label_selector: what the labels of its node have to be.
        fallback_strategy: what else will do, such as ``{"label_selector": …}``, the best one first.
    """

    num_cpus: float | None = None
    num_gpus: float = 0.0
    memory: float | None = None
    accelerator_type: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    label_selector: Mapping[str, str] | None = None
    fallback_strategy: Sequence[Mapping[str, object]] | None = None

    def __post_init__(self) -> None:
        if self.num_cpus is not None:
            check_number("resources.num_cpus", self.num_cpus, minimum=0)
        check_number("resources.num_gpus", self.num_gpus, minimum=0)
        if self.memory is not None:
            check_number("resources.memory", self.memory, minimum=0, unit="bytes")
        if self.accelerator_type is not None:
            check_text("resources.accelerator_type", self.accelerator_type)
        for name, amount in check_mapping("resources.resources", self.resources).items():
            check_number(f"resources.resources[{name!r}]", amount, minimum=0)
        if self.label_selector is not None:
            check_text_mapping("resources.label_selector", self.label_selector)
        if self.fallback_strategy is not None:
            if not isinstance(self.fallback_strategy, list | tuple):
                what = "a list of mappings, the best one first"
                raise refuse("resources.fallback_strategy", self.fallback_strategy, what, list)
            for each in self.fallback_strategy:
                check_mapping("resources.fallback_strategy", each)
