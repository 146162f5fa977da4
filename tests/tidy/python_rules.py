"""Rules that read Python."""

import ast
import builtins
from collections.abc import Iterator

from tests.tidy.tree import Finding, Source

FUNCTION_LINES_MAX = 70

# Modules that decide and do nothing else: they take `now` and randomness as arguments.
PURE_MODULES = (
    "pyserve/admin/calls/explaining.py",
    "pyserve/admin/calls/store.py",
    "pyserve/admin/api/counted.py",
    "pyserve/admin/api/resources.py",
    "pyserve/admin/api/overview.py",
    "pyserve/admin/histograms.py",
    "pyserve/admin/api/methods.py",
    "pyserve/admin/api/outliers.py",
    "pyserve/admin/api/openapi.py",
    "pyserve/admin/api/schemas.py",
    "pyserve/admin/trying/wanted.py",
    "pyserve/routing/measures.py",
    "pyserve/llm/engines/llama_tools.py",
    "pyserve/llm/engines/openai_json.py",
    "pyserve/llm/engines/sse.py",
    "pyserve/llm/simulated/answers.py",
    "pyserve/llm/simulated/blocks.py",
    "pyserve/llm/simulated/language.py",
    "pyserve/llm/simulated/scheduler.py",
    "pyserve/stepping/entries.py",
    "pyserve/stepping/scheduler.py",
    "pyserve/stepping/waiting.py",
    "pyserve/observe/metrics/catalogue.py",
    "pyserve/observe/metrics/catalogue_replica.py",
    "pyserve/observe/metrics/families.py",
    "pyserve/observe/metrics/metric.py",
    "pyserve/config/capabilities.py",
    "pyserve/config/proxies.py",
    "pyserve/launch/on_kubernetes/allowed.py",
    "pyserve/launch/on_kubernetes/manifests.py",
    "pyserve/launch/on_kubernetes/pods.py",
    "pyserve/launch/on_kubernetes/reading.py",
    "pyserve/launch/on_ray/resource_request.py",
    "pyserve/control/autoscaling/scaler.py",
    "pyserve/control/state/engines.py",
    "pyserve/control/state/replica.py",
    "pyserve/control/report.py",
    "pyserve/control/reconcile/rollout.py",
    "pyserve/control/autoscaling/arrivals.py",
    "pyserve/control/autoscaling/latency.py",
    "pyserve/control/state/applications.py",
    "pyserve/control/autoscaling/rule.py",
    "pyserve/control/autoscaling/signals.py",
    "pyserve/control/autoscaling/value_times.py",
    "pyserve/control/views.py",
    "pyserve/control/state/traffic.py",
    "pyserve/batching/batcher.py",
    "pyserve/control/reconcile/decide.py",
    "pyserve/pace.py",
    "pyserve/control/reconcile/start_limits.py",
    "pyserve/control/registry.py",
    "pyserve/control/recovery.py",
    "pyserve/control/state/specs.py",
    "pyserve/control/reconcile/cordon.py",
    "pyserve/control/health.py",
    "pyserve/control/state/mesh.py",
    "pyserve/control/state/history.py",
    "pyserve/control/store/records.py",
    "pyserve/errors.py",
    "pyserve/gateway/haproxy/text.py",
    "pyserve/gateway/haproxy/targets.py",
    "pyserve/launch/ledger.py",
    "pyserve/multiplexing/cache.py",
    "pyserve/multiplexing/history.py",
    "pyserve/references/store.py",
    "pyserve/references/wire.py",
    "pyserve/replica/checks.py",
    "pyserve/types.py",
)
_PURE_BANS = {
    "asyncio": "waits belong to the driver",
    "datetime.datetime.now": "take `now` as an argument",
    "open": "files belong to the driver",
    "os": "the machine belongs to the driver",
    "print": "return what there is to say",
    "random": "take a generator as an argument",
    "secrets": "take a generator as an argument",
    "socket": "sockets belong to the driver",
    "subprocess": "processes belong to the launcher",
    "threading": "a pure module is called by one thread at a time",
    "time": "take `now` as an argument",
    "uuid": "take ids as arguments",
}
_PACKAGE_BANS = {
    "multiprocessing": "processes are spawned by pyserve.launch, never forked",
    "os.fork": "product code never forks",
    "os.forkpty": "product code never forks",
    "time.sleep": "wait for a condition: an Event, a Condition, a descriptor",
}
_BUILTINS = frozenset(dir(builtins))
_NATIVE_USER = "pyserve/bridge"


def python_rules(source: Source) -> Iterator[Finding]:
    """Apply every rule for Python to one file."""
    if source.generated or not source.path.endswith(".py"):
        return
    tree = ast.parse(source.text, source.path)
    rules = (function_length, pure_modules, package_bans, environment, native_extension)
    for rule in (*rules, private_modules, docs):
        yield from rule(source, tree)


def function_length(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """A function stops at 70 lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                message = f"{node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"
                yield Finding(source.path, node.lineno, message)


def pure_modules(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """Modules that decide read no clock, draw no randomness and touch nothing."""
    if source.path in PURE_MODULES:
        yield from _banned(source, tree, _PURE_BANS)


def package_bans(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """The package waits for conditions and never forks."""
    if source.under("pyserve"):
        yield from _banned(source, tree, _PACKAGE_BANS)


def environment(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """The environment is read in pyserve.config and nowhere else."""
    if source.under("pyserve") and not source.under("pyserve/config"):
        bans = dict.fromkeys(("os.environ", "os.environb", "os.getenv"), "ask pyserve.config")
        yield from _banned(source, tree, bans)


def native_extension(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """The bridge knows the native extension, nobody else; import-linter does not see it."""
    if source.under("pyserve") and not source.under(_NATIVE_USER):
        bans = {"pyserve._router": f"only {_NATIVE_USER} may"}
        yield from _banned(source, tree, bans)


def private_modules(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """Other packages use private modules of the server through ``pyserve.aio.internal``."""
    if not source.under("pyserve") or source.under("pyserve/aio"):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyserve.aio._"):
            yield Finding(source.path, node.lineno, "import it from pyserve.aio.internal")


def docs(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """A module of the package says what it decides and what it refuses to do."""
    if source.under("pyserve") and tree.body and ast.get_docstring(tree) is None:
        yield Finding(source.path, 1, "a module without a docstring")


def _banned(source: Source, tree: ast.Module, bans: dict[str, str]) -> Iterator[Finding]:
    for line, name in sorted(set(_used_names(tree))):
        for banned, advice in bans.items():
            if name == banned or name.startswith(f"{banned}."):
                yield Finding(source.path, line, f"uses {name}: {advice}")


def _used_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what is imported or reached through a name, in full: `from os import environ` too."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names if "." in alias.name)
            case ast.ImportFrom(module=str(module)):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
    origins = _origins(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and (name := _dotted(node)):
            first, _, rest = name.partition(".")
            # A local variable may be called `time`.
            if first in origins or first in _BUILTINS:
                yield node.lineno, ".".join(filter(None, (origins.get(first, first), rest)))


def _origins(tree: ast.Module) -> dict[str, str]:
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                origins[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return origins


def _dotted(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{parent}.{attribute}" if (parent := _dotted(value)) else None
        case _:
            return None
