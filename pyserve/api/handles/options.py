"""The options of a handle: names and checks. Kept as a dict of what was given, nothing else.

A copy of a handle has to cost less than a microsecond, so only what is given is checked, and
what follows from all options together is worked out at the first call (``plan.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pyserve.config.validation import COST_MAX, option_error
from pyserve.errors import OptionError, OptionTypeError

Options = dict[str, object]

_WAIT_S_MAX = 10 * 365 * 86400
"""Ten years: far within what a lock can wait for, and longer than anybody means."""


_CACHE_KEYS_MAX = 256
"""As many as the native half sends: ``KEYS_MAX`` of `router_rs/protocol/src/cache_keys.rs`."""


def checked(options: Mapping[str, object]) -> None:
    """Check options that were given by name.

    Raises:
        OptionError: A name is unknown, or a value is not allowed.
    """
    for name, value in options.items():
        check = _CHECKS.get(name)
        if check is None:
            raise OptionTypeError(
                f"a handle has no option {name!r}; it has {', '.join(sorted(_CHECKS))}"
            )
        check(name, value)


def _refuse(name: str, value: object, allowed: str, *kinds: type) -> OptionError:
    return option_error(f"handle.options: {name} is {value!r}; use {allowed}", value, *kinds)


def checked_wait(name: str, timeout_s: object) -> float | None:
    """Return for how many seconds a thread may wait; ``None``: without a limit.

    Args:
        name: What messages call the argument, e.g. ``result: timeout_s``.
        timeout_s: 0 means not to wait; what is longer than a wait can be is cut.

    Raises:
        OptionError: It is no number, or below 0.
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
        text = (
            f"{name} is {timeout_s!r}; use a number of seconds, 0 for an answer that is here "
            f"already, or None for no limit"
        )
        raise option_error(text, timeout_s, int, float)
    return float(min(timeout_s, _WAIT_S_MAX))


def _boolean(name: str, value: object) -> None:
    if value is not True and value is not False:
        raise _refuse(name, value, "True or False", bool)


def _optional_boolean(name: str, value: object) -> None:
    if value is not None and value is not True and value is not False:
        raise _refuse(name, value, "True, False, or None for the default", bool)


def _text(name: str, value: object) -> None:
    if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
        raise _refuse(name, value, "printable ASCII text", str)


def _keys(name: str, value: object) -> None:
    if not callable(value):
        checked_keys(name, value)


def checked_keys(name: str, value: object) -> tuple[bytes | str | int, ...]:
    """Return the cache entries that a call names.

    Raises:
        OptionError: They are no list of keys, or too many.
    """
    allowed = (
        f"a list of at most {_CACHE_KEYS_MAX} bytes, str or int, or a function that returns one"
    )
    if not isinstance(value, list | tuple) or len(value) > _CACHE_KEYS_MAX:
        raise _refuse(name, value, allowed, list, tuple)
    if any(isinstance(key, bool) or not isinstance(key, bytes | str | int) for key in value):
        raise _refuse(name, value, allowed, list, tuple)
    return tuple(value)


def _method(name: str, value: object) -> None:
    public = isinstance(value, str) and value.isidentifier() and not value.startswith("_")
    if not public and value != "__call__":
        raise _refuse(name, value, "the name of a public method, such as 'predict'", str)


def _codec(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value):
        raise _refuse(name, value, "the name of a serializer, such as 'pickle' or 'msgpack'", str)


def _seconds(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _refuse(name, value, "a number of seconds above 0, or None for no limit", int, float)


def _priority(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not -128 <= value <= 127:
        raise _refuse(name, value, "an integer from -128 to 127", int)


def _cost(name: str, value: object) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= COST_MAX:  # type: ignore[operator]  # a number
        allowed = f"a number from 0 to {COST_MAX:.0f}, or None for what such calls cost"
        raise _refuse(name, value, allowed, int, float)


def _locality(name: str, value: object) -> None:
    if value is not None and value is not True and value is not False and value != "zone":
        allowed = "True for node and zone, 'zone', False for neither, or None for the default"
        raise _refuse(name, value, allowed, bool, str)


_CHECKS: dict[str, Callable[[str, object], None]] = {
    "stream": _boolean,
    "multiplexed_model_id": _text,
    "session_id": _text,
    "cache_keys": _keys,
    "method_name": _method,
    "timeout_s": _seconds,
    "priority": _priority,
    "cost": _cost,
    "idempotent": _boolean,
    "detached": _boolean,
    "request_serialization": _codec,
    "response_serialization": _codec,
    "_by_reference": _optional_boolean,
    "_prefer_local_routing": _locality,
}
