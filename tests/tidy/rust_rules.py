"""Rules that read Rust."""

import re
import tomllib
from collections.abc import Iterator

from tests.tidy import rust
from tests.tidy.tree import ROOT, Finding, Source

FUNCTION_LINES_MAX = 70

CORE = "router_rs/core"
BINDING = "router_rs/py"
# Memory that two processes share, besides what Python shares.
UNSAFE_CRATES = (BINDING, "router_rs/arena")
MEMBERS = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
SAFE_CRATES = tuple(member for member in MEMBERS if member not in UNSAFE_CRATES)
ROUTER_CRATES = tuple(
    crate.removeprefix("router_rs/")
    for crate in MEMBERS
    if crate.startswith("router_rs/") and crate != BINDING
)

# Matched as words in code; comments and strings may say them.
_CORE_BANS = {
    r"Instant::now": "take `now` as an argument",
    r"SystemTime": "take `now` as an argument",
    r"std::(?:fs|io|net|process|thread|env)\b": "the core performs no I/O",
    r"thread::sleep": "the core does not wait",
    r"\brand::|\bthread_rng\b|\bgetrandom\b|\bRandomState\b": "draw from the seeded generator",
    r"\b(?:tokio|hyper|pyo3|h2)::": "the core knows no runtime and no protocol",
    r"\be?print(?:ln)?!": "return what there is to say",
}
_ENVIRONMENT = re.compile(r"\benv::(?:var|vars|var_os)\b")
_UNSAFE = re.compile(r"\bunsafe\b")
_COMMENT_OR_ATTRIBUTE = re.compile(r"\s*(?://|#\[|\*)")


def rust_rules(source: Source) -> Iterator[Finding]:
    """Apply every rule for Rust to one file."""
    if not source.path.endswith(".rs"):
        return
    code = rust.code_only(source.text)
    for rule in (function_length, core_bans, environment, unsafe_blocks, crate_roots):
        yield from rule(source, code)


def function_length(source: Source, _code: str) -> Iterator[Finding]:
    """A function stops at 70 lines."""
    for function in rust.functions(source.text):
        if function.length > FUNCTION_LINES_MAX:
            message = f"{function.name} has {function.length} lines, at most {FUNCTION_LINES_MAX}"
            yield Finding(source.path, function.line, message)


def core_bans(source: Source, code: str) -> Iterator[Finding]:
    """The core reads no clock, draws no ambient randomness and performs no I/O."""
    if source.under(f"{CORE}/src"):
        for pattern, advice in _CORE_BANS.items():
            for found in re.finditer(pattern, code):
                line = _line_of(code, found.start())
                yield Finding(source.path, line, f"uses {found.group()}: {advice}")


def environment(source: Source, code: str) -> Iterator[Finding]:
    """Settings come from pyserve.config, which reads the environment once."""
    if source.under("router_rs") and "/src/" in source.path:
        for found in _ENVIRONMENT.finditer(code):
            yield Finding(source.path, _line_of(code, found.start()), "reads the environment")


def unsafe_blocks(source: Source, code: str) -> Iterator[Finding]:
    """Unsafe code stands in two crates only, each use under its argument."""
    for found in _UNSAFE.finditer(code):
        line = _line_of(code, found.start())
        if not source.under(*UNSAFE_CRATES):
            yield Finding(source.path, line, f"unsafe outside {' and '.join(UNSAFE_CRATES)}")
        elif not _has_argument(source.lines, line):
            yield Finding(source.path, line, "unsafe without `// SAFETY:` above it")


def crate_roots(source: Source, _code: str) -> Iterator[Finding]:
    """The crates that need no unsafe code forbid it."""
    roots = {f"{crate}/src/{name}.rs" for crate in SAFE_CRATES for name in ("lib", "main")}
    if source.path in roots and "#![forbid(unsafe_code)]" not in source.lines:
        yield Finding(source.path, 1, "lacks #![forbid(unsafe_code)]")


def _has_argument(lines: list[str], line: int) -> bool:
    """Whether the comment that ends right above ``line`` (1-based) argues for its safety."""
    above = line - 2
    while above >= 0 and _COMMENT_OR_ATTRIBUTE.match(lines[above]):
        if "SAFETY:" in lines[above] or "# Safety" in lines[above]:
            return True
        above -= 1
    return False


def _line_of(code: str, offset: int) -> int:
    return code.count("\n", 0, offset) + 1
