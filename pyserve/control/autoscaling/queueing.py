"""How many servers a stream of calls needs so that few of them wait long. Pure.

Formulas: Erlang's C (A. K. Erlang, 1917; by the recursion of his B, which is stable for any number
of servers), and the approximation of Allen and Cunneen (A. O. Allen, "Probability, Statistics and
Queueing Theory", 1978) for arrivals and services of any variability: waits are those of
exponential ones times (ca² + cs²) / 2. That waits above zero are exponential is from W. Whitt,
"Approximations for the GI/G/m queue", 1993.
"""

from __future__ import annotations

import math


def erlang_c(servers: int, load: float) -> float:
    """Return the share of calls that wait.

    Args:
        servers: How many there are, at least 1.
        load: In Erlangs: arrivals in the time of one service.
    """
    if load >= servers:
        return 1.0
    return _waiting_share(_erlang_b(servers, load), servers, load)


def share_beyond(servers: int, load: float, limit: float, variability: float) -> float:
    """Return the share of calls that wait longer than ``limit``.

    Args:
        servers: How many there are.
        load: In Erlangs.
        limit: In times of one service.
        variability: (ca² + cs²) / 2, of the times between arrivals and of the services.
    """
    if load >= servers:
        return 1.0
    return erlang_c(servers, load) * _tail(servers, load, limit, variability)


def servers_for(
    load: float, limit: float, *, variability: float, share: float, servers_max: int
) -> int:
    """Return the fewest servers with which at most ``share`` of the calls wait beyond ``limit``.

    Args:
        load: In Erlangs.
        limit: In times of one service.
        variability: As of ``share_beyond``.
        share: Of the calls, above 0 and below 1.
        servers_max: The answer where that many do not suffice.
    """
    lost = 1.0
    for servers in range(1, servers_max):
        lost = load * lost / (servers + load * lost)
        if load < servers:
            waiting = _waiting_share(lost, servers, load)
            if waiting * _tail(servers, load, limit, variability) <= share:
                return servers
    return servers_max


def _erlang_b(servers: int, load: float) -> float:
    lost = 1.0
    for number in range(1, servers + 1):
        lost = load * lost / (number + load * lost)
    return lost


def _waiting_share(lost: float, servers: int, load: float) -> float:
    return lost / (1 - load / servers * (1 - lost))


def _tail(servers: int, load: float, limit: float, variability: float) -> float:
    return math.exp(-(servers - load) * limit / variability)
