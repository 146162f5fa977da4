"""How a replica runs user code: settings and their variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyserve.config import variables as read


@dataclass(frozen=True, kw_only=True)
class ConcurrencySettings:
    """How a replica runs user code beside its own duties.

    Attributes:
        user_code_in_separate_thread: the replica's connection to its controller and its health
            checks have an event loop and a thread of their own; otherwise they share the loop
            of user code.
        loop_stall_s: how long user code may hold that loop before it is reported; 0: for ever.
        keeps_freed_memory: whether malloc is configured to keep the freed memory of large
            messages; otherwise its configuration by user code or its own variables stays.
    """

    user_code_in_separate_thread: bool = True
    loop_stall_s: float = 0.1
    keeps_freed_memory: bool = True


def read_concurrency(variables: Mapping[str, str]) -> ConcurrencySettings:
    """Return what these variables say.

    Raises:
        OptionError: A value cannot be used.
    """
    # The profile changes only defaults: a variable that is set takes precedence over it.
    optimized = read.switch(variables, "PYSERVE_THROUGHPUT_OPTIMIZED")
    # Read so that a wrong value is refused; the router has threads of its own in any case.
    read.switch(variables, "PYSERVE_RUN_ROUTER_IN_SEPARATE_LOOP")
    return ConcurrencySettings(
        user_code_in_separate_thread=read.switch(
            variables, "PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD", default=not optimized
        ),
        loop_stall_s=read.seconds(
            variables, "PYSERVE_LOOP_STALL_S", ConcurrencySettings.loop_stall_s
        ),
        keeps_freed_memory=read.switch(variables, "PYSERVE_KEEP_FREED_MEMORY", default=True),
    )
