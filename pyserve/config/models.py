"""The methods of pydantic's models, for code that was written for Ray Serve's configurations.

Ours are frozen dataclasses, which load in a fraction of the time; what one of them refuses is an
``OptionError``, and so a ``ValueError``, as a ``ValidationError`` of pydantic is.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, Self

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
