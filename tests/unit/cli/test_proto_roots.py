"""Where imports of ``.proto`` files start: found where one folder fits, else told with a remedy."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pyserve.cli.commands import CommandFailed
from pyserve.cli.proto import generate_missing, proto, proto_files
from pyserve.cli.proto_roots import Roots, find_roots, missing_imports, remedy
from pyserve.cli.target import load_application

COMMON = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
PRICE = """
syntax = "proto3";
package shop.price;
import "common.proto";
service Price { rpc Of(shop.Item) returns (shop.Item); }
"""
SHIPPED = Path("nothing-is-shipped")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with imports that are relative to ``my-protos``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    put("my-protos/common.proto", COMMON)
    put("my-protos/sub/price.proto", PRICE)
    (tmp_path / "priced.py").write_text("from sub import price_pb2_grpc\napp = None\n")
    return tmp_path


def put(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def found() -> Roots:
    return find_roots(list(proto_files(Path())), SHIPPED)


def remedies(roots: Roots) -> list[str]:
    files = list(proto_files(Path()))
    return [remedy(each, files, roots) for each in missing_imports(files, roots, SHIPPED)]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(proto, arguments)


def import_with(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import priced"],
        env={"PYTHONPATH": str(path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def advice() -> str:
    with pytest.raises(CommandFailed) as raised:
        load_application("priced:app", {})
    assert "" == raised.value.traceback
    return str(raised.value)


def test_the_one_folder_above_that_has_the_import_is_found(folder: Path) -> None:
    put("other/lone.proto", 'syntax = "proto3"; // import "missing.proto";')
    roots = found()
    assert {Path("my-protos")} == set(roots.found)
    assert "sub/price.proto" == roots.name_of(Path("my-protos/sub/price.proto"))
    assert "common.proto" == roots.name_of(Path("my-protos/common.proto"))
    assert "other/lone.proto" == roots.name_of(Path("other/lone.proto"))


def test_each_file_takes_the_innermost_folder_that_was_found(folder: Path) -> None:
    put("my-protos/deep/a.proto", 'import "inner/b.proto";')
    put("my-protos/deep/inner/b.proto", "")
    deep, outer = Path("my-protos/deep"), Path("my-protos")
    assert (deep, outer, Path()) == found().of(deep / "a.proto")
    assert (outer, Path()) == found().of(outer / "common.proto")


@pytest.mark.usefixtures("folder")
def test_what_the_working_directory_has_is_never_guessed() -> None:
    put("common.proto", COMMON)
    assert {} == found().found


@pytest.mark.usefixtures("folder")
def test_a_folder_above_is_found_whether_python_has_it_on_its_path_or_not() -> None:
    sys.path.append(str(Path("my-protos").absolute()))
    assert {Path("my-protos")} == set(found().found)


@pytest.mark.usefixtures("folder")
def test_two_folders_that_have_it_are_both_named() -> None:
    put("my-protos/sub/common.proto", COMMON)
    assert {} == found().found
    (text,) = remedies(found())
    assert "`pyserve proto -I my-protos/sub my-protos/sub` or" in text
    assert "or `pyserve proto -I my-protos my-protos`" in text


@pytest.mark.usefixtures("folder")
def test_a_file_that_would_get_two_names_is_told_with_both() -> None:
    put("my-protos/other.proto", 'syntax = "proto3"; import "my-protos/common.proto";')
    assert {} == found().found
    assert [
        "my-protos/sub/price.proto imports common.proto, but my-protos/other.proto imports "
        "my-protos/common.proto: write both from the same folder"
    ] == remedies(found())


@pytest.mark.usefixtures("folder")
def test_an_import_from_a_folder_beside_has_its_commands() -> None:
    put("api/use.proto", 'syntax = "proto3"; import "base.proto";')
    put("lib/base.proto", 'syntax = "proto3";')
    assert [
        "api/use.proto imports base.proto, which is lib/base.proto: "
        "run `pyserve proto -I lib lib` and `pyserve proto -I . -I lib api/use.proto`, "
        "with the same folders on PYTHONPATH"
    ] == remedies(found())
    Path("lib/base.proto").unlink()
    assert "which no folder here has: give -I" in remedies(found())[0]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("my-protos",), ("-I", "my-protos", "my-protos")])
def test_stubs_of_such_a_folder_can_be_imported_from_it(
    arguments: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is on the path, ``pyserve run`` says so."""
    result = invoke(*arguments)
    assert 0 == result.exit_code, result.output
    assert ("PYTHONPATH=my-protos" in result.output) == (len(arguments) == 1)
    # Dashes become underscores only below the folder.
    assert "mypy" in Path("my-protos/sub/price_pb2_grpc.pyi").read_text()
    assert "pyright" in Path("my-protos/sub/price_pb2.pyi").read_text()
    assert "No module named 'sub'" in import_with(folder).stderr
    assert "run again with PYTHONPATH=my-protos" in advice()
    monkeypatch.syspath_prepend(str(folder / "my-protos" / "sub"))
    put("priced.py", "import price_pb2")
    assert "the stubs of my-protos/common.proto are there" in advice()
    put("priced.py", "from sub import price_pb2_grpc")
    assert 0 == import_with(folder / "my-protos").returncode


@pytest.mark.slow
def test_a_file_alone_is_generated_as_it_was_before(folder: Path) -> None:
    """The files that import it are not looked at then; -I is stronger."""
    assert 0 == invoke("my-protos").exit_code
    result = invoke("my-protos/common.proto")
    assert "common.proto has been generated so before, so imports start in my-protos" in (
        result.output
    )
    assert 0 == import_with(folder / "my-protos").returncode
    assert 0 == invoke("-I", ".", "my-protos/common.proto").exit_code
    assert "source: my-protos/common.proto" in Path("my_protos/common_pb2.py").read_text()


@pytest.mark.slow
def test_an_import_without_stubs_outside_of_the_path_has_its_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 == invoke("my-protos/sub").exit_code
    monkeypatch.syspath_prepend(str(folder / "my-protos" / "sub"))
    put("priced.py", "import price_pb2")
    assert "run `pyserve proto -I my-protos my-protos/common.proto`, then this again" in advice()


@pytest.mark.slow
def test_a_refused_import_has_its_remedy_after_the_lines_of_protoc(folder: Path) -> None:
    put("my-protos/sub/common.proto", COMMON.replace("shop", "sub"))
    result = invoke(".")
    assert isinstance(result.exception, CommandFailed)
    assert "my-protos/sub/price.proto imports common.proto, which is" in result.output


@pytest.mark.slow
def test_what_run_generates_anew_keeps_where_imports_start(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also a file that had been generated before another one imported it from there."""
    price = Path("my-protos/sub/price.proto")
    price.unlink()
    generate_missing()
    put(str(price), PRICE)
    for made in (2, 0, 1):
        capfd.readouterr()
        if made == 1:
            put("my-protos/common.proto", COMMON)
        generate_missing()
        assert made == capfd.readouterr().out.count("generated")
        assert (0, "") == (import_with(folder / "my-protos").returncode, "")
