"""Reads a page and does what it says, in a folder of its own.

What a fenced block means is told by the words after its language, which renderers ignore:

- ``python client.py``, ``proto greeter.proto``, ``yaml serve.yaml``: the content of that file.
- ``console``: lines that begin with ``$ `` are run one after the other; the lines below each are
  its whole output, where ``...`` stands for anything.
- ``console server``: the command stays in the background; its block has run once its output
  contains the lines below. It is interrupted at the end of the page and has to exit with 0.
- ``console curl``: run only where that program is; readers may lack it, and so may machines.
- ``console containers``: needs a container engine; tests/compose/test_readme.py runs it.

- ``python`` alone: a snippet; it runs on its own, without what stands before it.

Other blocks are not run.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import wait_until

COMMAND_TIMEOUT_S = 60.0

_IMPORT_EACH = "import importlib, sys; [*map(importlib.import_module, sys.argv[1:])]"

# What the pages say, and what the tests put there: a port that is free.
PRINTED_ADDRESS = "127.0.0.1:8000"
_APPLICATION = re.compile(r"^app = ", re.MULTILINE)
_BOUND_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_FENCE = re.compile(
    r"^```(?P<language>\w+)(?P<words>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One fenced block; ``line`` is that of its fence."""

    language: str
    words: tuple[str, ...]
    body: str
    line: int

    @property
    def is_file(self) -> bool:
        return self.language in {"python", "proto", "yaml"} and len(self.words) == 1

    @property
    def is_snippet(self) -> bool:
        return self.language == "python" and not self.words

    @property
    def is_console(self) -> bool:
        return self.language == "console" and not self.needs_engine

    @property
    def needs_engine(self) -> bool:
        return self.language == "console" and "containers" in self.words


def read_blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [
        Block(
            found["language"],
            tuple(found["words"].split()),
            found["body"],
            text.count("\n", 0, found.start()) + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def run_snippets(text: str, folder: Path) -> int:
    """Run each snippet of a page as a module of its own, all in one process; return how many.

    Raises:
        AssertionError: One raised; the traceback says on which line of the page it begins.
    """
    modules = []
    for block in read_blocks(text):
        if block.is_snippet:
            modules.append(f"line_{block.line}")
            (folder / f"{modules[-1]}.py").write_text(block.body, encoding="utf-8")
    _execute(shlex.join(["python", "-c", _IMPORT_EACH, *modules]), "...", folder, COMMAND_TIMEOUT_S)
    return len(modules)


def run_commands(body: str, folder: Path, timeout_s: float = COMMAND_TIMEOUT_S) -> int:
    """Run the commands of one block in ``folder``; return how many there were.

    Raises:
        AssertionError: One failed or its output is not what the block shows.
    """
    commands = list(_commands(body))
    for command, expected in commands:
        _execute(command, expected, folder, timeout_s)
    return len(commands)


def run_page(text: str, folder: Path) -> int:
    """Do what the page says, in ``folder``; return how many commands were run.

    Raises:
        AssertionError: A command failed or its output is not what the page shows.
    """
    with ExitStack() as servers:
        reader = _Reader(folder, servers)
        for block in read_blocks(text):
            reader.run(block)
    return reader.commands


def run_in_process(text: str, folder: Path) -> int:
    """Serve the applications of a page in processes of their own, and do what clients do there.

    Returns:
        How many applications were served.

    Raises:
        AssertionError: One cannot be served so, or a client does not get what the page shows.
    """
    reader = _Reader(folder, ExitStack())
    blocks = [block for block in read_blocks(text) if block.is_file]
    for block in blocks:
        reader.run(block)
    if any(block.language == "proto" for block in blocks):
        _execute("pyserve proto .", "...", folder, COMMAND_TIMEOUT_S)
    modules = [
        Path(block.words[0]).stem
        for block in blocks
        if block.language == "python" and _APPLICATION.search(block.body)
    ]
    for module in modules:
        with ExitStack() as servers:
            local = _Reader(folder, servers)
            local.run_server(f"pyserve run {module}:app --in-process", "is ready at ...")
            local.run_clients(read_blocks(text), f"pyserve run {module}:app")
    return len(modules)


@dataclass
class _Reader:
    folder: Path
    servers: ExitStack
    address: str = PRINTED_ADDRESS
    commands: int = field(default=0)

    def run(self, block: Block) -> None:
        if block.is_file:
            path = self.folder / block.words[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._localized(block.body), encoding="utf-8")
        elif block.is_console and all(map(shutil.which, set(block.words) - {"server"})):
            for command, expected in _commands(self._localized(block.body)):
                self.commands += 1
                if "server" in block.words:
                    self._serve(command, expected)
                else:
                    _execute(command, expected, self.folder, COMMAND_TIMEOUT_S)

    def run_server(self, command: str, expected: str) -> None:
        """Have a command in the background until the end."""
        self._serve(command, expected)

    def run_clients(self, blocks: Sequence[Block], served_by: str) -> None:
        """Run the commands that follow a server, up to the first one that needs a mesh."""
        is_served = False
        for block in blocks:
            if block.is_file:
                self.run(block)
            for command, expected in _commands(block.body) if block.is_console else ():
                if command == served_by or not is_served:
                    is_served = command == served_by
                elif (localized := self._as_client(command)) is None:
                    return
                elif all(map(shutil.which, block.words)):
                    _execute(localized, expected, self.folder, COMMAND_TIMEOUT_S)

    def _as_client(self, command: str) -> str | None:
        """Return a command that talks with the address alone; ``None``: it does more."""
        if command.startswith("pyserve call "):
            return f"{command} --address {self.address}"
        if PRINTED_ADDRESS in command or command == "python client.py":
            return self._localized(command)
        return None

    def _localized(self, text: str) -> str:
        return text.replace(PRINTED_ADDRESS, self.address)

    def _serve(self, command: str, expected: str) -> None:
        # A second one finds the mesh of the first.
        if re.match("pyserve (run|start)\\b", command) and self.address == PRINTED_ADDRESS:
            command += " --address 127.0.0.1:0"
            expected = expected.replace(PRINTED_ADDRESS, "...")
        log, process = self.servers.enter_context(_background(command, self.folder))
        pattern = re.compile(_pattern(expected))
        wait_until(
            lambda: pattern.search(log.read_text()) or process.poll() is not None,
            COMMAND_TIMEOUT_S,
            f"{command!r} prints {expected!r}",
        )
        assert pattern.search(log.read_text()), f"$ {command}\nended without {expected!r}"
        if found := _BOUND_ADDRESS.search(log.read_text()):
            self.address = found.group()


def _execute(command: str, expected: str, folder: Path, timeout_s: float) -> None:
    result = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert result.returncode == 0, f"$ {command}\nexit {result.returncode}\n{result.stdout}"
    pattern = _pattern(expected)
    assert re.fullmatch(pattern, result.stdout.strip()), (
        f"$ {command}\nprinted:\n{result.stdout}\nthe page says:\n{expected}"
    )


def _commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", " ").partition("\n")
        yield command.strip(), output.strip()


def _pattern(expected: str) -> str:
    """Turn what a page shows into a pattern, where ``...`` stands for anything."""
    return re.escape(expected).replace(re.escape("..."), r"[\s\S]*?")


def _environment() -> dict[str, str]:
    """The tests' environment, with their interpreter and its programs in front."""
    folder = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}


@contextmanager
def _background(command: str, folder: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    log = folder / f".server-{uuid.uuid4().hex}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            shlex.split(command),
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log, process
    except BaseException as error:
        error.add_note(f"$ {command}\n{log.read_text()}")
        raise
    finally:
        process.send_signal(signal.SIGINT)
        try:
            exit_code = process.wait(timeout=COMMAND_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
    assert exit_code == 0, f"$ {command}\nexit {exit_code}\n{log.read_text()}"
