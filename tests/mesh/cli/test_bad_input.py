"""Code that cannot be served ends ``pyserve run`` with one clear message and no leftovers."""

import re
import socket
from pathlib import Path

import pytest

from tests.mesh.commands import pyserve

BROKEN = "tests.mesh.apps.broken"
SOURCE = Path(__file__).parents[1] / "apps" / "broken.py"


def place_of(text: str) -> str:
    """Return ``file:line`` of ``text`` in ``broken.py``."""
    before, found, _ = SOURCE.read_text().partition(text)
    assert found
    return f"broken.py:{before.count(chr(10)) + 1}"


def run(target: str, environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run a target that cannot run; return the exit code, the message, and what follows it."""
    result = pyserve("run", target, "--address", "127.0.0.1:0", *arguments, environment=environment)
    _, *messages = re.split("^Error: ", result.stderr, flags=re.MULTILINE)
    assert 1 == len(messages), f"there is not one message in {result.stderr!r}"
    message, _, after = messages[0].partition("\n\n")
    return result.returncode, message, after


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attribute", "place", "says", "traceback_has"),
    [
        ("Misspelt", "Perfrom(", "Misspelt.Perfrom is no method", ""),
        ("Misspelt", "Perfrom(", "async def Perform(self, ", ""),
        ("WrongKind", ":\n        yield", "yields, but its RPC answers with one", ""),
        ("WrongSignature", "Echo(self) ->", "takes nothing besides self", ""),
        ("Raises", "raise FileNot", "constructor of Raises", 'raise FileNotFoundError("model'),
        ("Exits", "raise SystemExit", "constructor of Exits", 'raise SystemExit("nothing'),
        ("WarmupRaises", "raise Memory", "WarmupRaises.warmup", 'raise MemoryError("no room'),
    ],
)
def test_a_class_that_cannot_be_served_is_told_with_its_place(
    attribute: str, place: str, says: str, traceback_has: str, mesh_environment: dict[str, str]
) -> None:
    code, message, after = run(f"{BROKEN}:{attribute}", mesh_environment)
    assert 1 == code
    assert says in message
    assert (place_of(place) if place else "") in message
    # Frames that are all of pyserve would only hide what the message says.
    assert after.startswith("Traceback (most recent call last)") == bool(traceback_has)
    assert traceback_has in after


@pytest.mark.slow
def test_a_constructor_that_hangs_fails_after_its_startup_timeout(
    mesh_environment: dict[str, str],
) -> None:
    code, message, _ = run(f"{BROKEN}:Hangs", mesh_environment)
    assert 1 == code
    assert "Hangs" in message
    assert "startup_timeout_s" in message


@pytest.mark.slow
def test_a_port_that_is_taken_is_named_with_what_to_do(mesh_environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = pyserve(
            "run", "tests.mesh.apps.small:app", "--address", address, environment=mesh_environment
        )
    assert 1 == result.returncode
    assert result.stderr.count("Error:") == 1
    assert address in result.stderr


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("tests.mesh.apps.broken", 1, "write module:attribute"),
        ("tests.mesh.apps.brokn:app", 1, "no module 'tests.mesh.apps.brokn'"),
        (f"{BROKEN}:Misspel", 1, "did you mean 'Misspelt'?"),
        (f"{BROKEN}:number", 1, "is 3; name an application"),
        (f"{BROKEN}:raises", 1, f"LookupError: no such configuration (at {SOURCE}:"),
        ("tests.mesh.apps.broken_import:app", 1, "No module named 'a_module_that_nobody_wrote'"),
    ],
)
def test_a_target_that_cannot_be_loaded_starts_no_mesh(
    target: str, code: int, says: str, mesh_environment: dict[str, str]
) -> None:
    found, message, _ = run(target, mesh_environment)
    assert (code, True) == (found, says in message), message
    assert not list(Path(mesh_environment["PYSERVE_HOME"]).iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run",), "Missing argument"),
        (("run", "tests.mesh.apps.small:app", "prefix=x"), "is bound already"),
        (("run", "tests.mesh.apps.small:Small", "prefx=x"), "prefx"),
        (("run", "tests.mesh.apps.small:Small", "prefix"), "write key=value"),
        (("run", "tests.mesh.apps.small:app", "--address", "nowhere"), "HOST:PORT"),
        (("run", "tests.mesh.apps.small:app", "--name", "a b"), "--name='a b' is not allowed"),
        (("call", "Echo"), "write package.Service/Method"),
        (("call", "a.B/C", "--timeout", "nan"), "'nan' is no number of seconds"),
        (("call", "a.B/C", "--timeout", "0"), "not in the range"),
        (("call", "a.B/C", "--timeout", "inf"), "not in the range"),
        (("call", "a.B/C", "--address", "nowhere"), "--address='nowhere' is not allowed"),
        (("shutdown", "--grace", "nan"), "'nan' is no number of seconds"),
        (("stauts",), "No such command 'stauts'. (Did you mean 'status'?)"),
        (("stop",), "No such command 'stop'. (Did you mean 'shutdown'?)"),
        (("xyzzy",), "No such command 'xyzzy'.\n"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_to_write(
    arguments: tuple[str, ...], says: str, mesh_environment: dict[str, str]
) -> None:
    result = pyserve(*arguments, environment=mesh_environment)
    assert (2, True) == (result.returncode, says in result.stderr), result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["status", "shutdown"])
def test_without_a_mesh_these_commands_say_so(
    command: str, mesh_environment: dict[str, str]
) -> None:
    result = pyserve(command, environment=mesh_environment)
    assert (1, True) == (result.returncode, "no mesh runs here" in result.stderr)


@pytest.mark.parametrize("command", ["status", "shutdown"])
def test_a_mesh_that_cannot_be_reached_is_named_as_it_was_given(
    command: str, mesh_environment: dict[str, str]
) -> None:
    address = "127.0.0.1:1"
    given = pyserve(command, "--controller", address, environment=mesh_environment)
    set_ = pyserve(command, environment={**mesh_environment, "PYSERVE_CONTROLLER": address})
    assert (1, 1) == (given.returncode, set_.returncode)
    assert f"--controller names {address}, but its token is unknown" in given.stderr
    assert f"PYSERVE_CONTROLLER names {address}, but its token is unknown" in set_.stderr


@pytest.mark.parametrize("command", ["status", "shutdown"])
@pytest.mark.parametrize("given", [True, False])
def test_a_controller_that_does_not_answer_is_told_with_what_names_it(
    given: bool, command: str, mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("ab" * 32)
    token_file.chmod(0o600)
    environment = {**mesh_environment, "PYSERVE_TOKEN_FILE": str(token_file)}
    arguments = ("--controller", "127.0.0.1:1") if given else ()
    if not given:
        environment["PYSERVE_CONTROLLER"] = "127.0.0.1:1"
    result = pyserve(command, *arguments, environment=environment)
    name = "--controller" if given else "PYSERVE_CONTROLLER"
    assert 1 == result.returncode
    assert "the controller at 127.0.0.1:1 does not answer" in result.stderr
    assert f"look whether it runs there, or give {name} the address of one" in result.stderr
    assert "`pyserve" not in result.stderr


@pytest.mark.slow
def test_a_misspelt_variable_is_warned_of_once(mesh_environment: dict[str, str]) -> None:
    environment = {**mesh_environment, "PYSERVE_INGRESS_MAX_CONECTIONS": "5"}
    result = pyserve("run", f"{BROKEN}:Raises", "--address", "127.0.0.1:0", environment=environment)
    meant = "did you mean PYSERVE_INGRESS_MAX_CONNECTIONS?"
    assert 1 == result.stderr.count(meant), result.stderr
    (line,) = [line for line in result.stderr.splitlines() if meant in line]
    assert line.startswith("pyserve: warning: PYSERVE_INGRESS_MAX_CONECTIONS is no setting")
