"""Words that once named something here and are out: the field has a term for each.

A reader of the code should need no glossary, so a name that would need a row in one is not used
again. Public names, and words that user code or tests choose for themselves, are not looked at.
"""

import re
from collections.abc import Iterator

from tests.tidy.tree import Finding, Source

_SUFFIXES = (".rs", ".py", ".pyi", ".proto", ".md", ".js", ".mjs")
_ELSEWHERE = ("tests/tidy", "tests/contract/foreign", "benchmarks/results")

# Everywhere, as a part of a name or as a word; then only in the named folders, where the word has
# another meaning elsewhere.
_OUT = {
    "crumbs": "coalescer",
    "doorway": "connection_limit",
    "entrant": "pending connection",
    "offenders": "penalty box",
    "ration": "rate limit",
    "rationed": "rate-limited",
    "rationing": "rate limits",
    "rations": "rate limits",
    "roster": "replica index",
    "seldom": "rarely",
    "turnstile": "limiter",
    "vitals": "reachability, liveness",
}
_OUT_IN_RUST = {
    "asks.rs": "lease_requests.rs",
    "blame.rs": "outcome.rs",
    "gather.rs": "coalesce.rs",
    "kept.rs": "replay_buffer.rs",
    "lasting": "long-lived",
    "liveness": "keepalive",
    "patience.rs": "holding.rs",
    "poll_gone": "poll_cancelled",
    "shadow.rs": "mirror.rs",
    "verdict.rs": "attempt_outcome.rs",
}
_TYPES_OUT_IN_RUST = {
    "Ask": "LeaseRequest",
    "Crumbs": "ChunkCoalescer",
    "Entrant": "PendingConnection",
    "Gone": "Cancelled",
    "KeptBudget": "ReplayBudget",
    "Liveness": "Keepalive",
    "Offenders": "PenaltyBox",
    "Ration": "RateLimiter",
    "Resting": "IdleConnections",
    "Shadow": "MirroredCall",
    "SocketRation": "SocketRateLimiter",
    "Strangers": "ConnectionThrottle",
    "Turnstile": "HandshakeLimiter",
    "Vitals": "Reachability",
}
_TYPE = re.compile(r"\b(?:struct|enum|trait|type) (\w+)")


def _parts(words: dict[str, str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9])")


_WORD, _WORD_IN_RUST = _parts(_OUT), _parts(_OUT_IN_RUST)


def retired_words(source: Source) -> Iterator[Finding]:
    """No name or comment has a word that the field's own term has replaced."""
    if not source.path.endswith(_SUFFIXES) or source.under(*_ELSEWHERE):
        return
    is_rust = source.under("router_rs")
    for number, line in enumerate([source.path, *source.lines]):
        found = {word: _OUT[word] for word in _WORD.findall(line)}
        if is_rust:
            found |= {word: _OUT_IN_RUST[word] for word in _WORD_IN_RUST.findall(line)}
            names = _TYPE.findall(line)
            found |= {
                name: _TYPES_OUT_IN_RUST[name] for name in names if name in _TYPES_OUT_IN_RUST
            }
        for word, instead in found.items():
            yield Finding(source.path, max(number, 1), f"the word {word} is out: {instead}")
