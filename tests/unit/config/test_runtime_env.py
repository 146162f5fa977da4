"""``runtime_env``, as Ray Serve's users write it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyserve.config import DeploymentOptions
from pyserve.errors import OptionError


@pytest.mark.parametrize("where", ["runtime_env", "ray_actor_options"])
def test_it_is_taken_apart(where: str, tmp_path: Path) -> None:
    runtime_env = {
        "env_vars": {"FLAVOUR": "sour"},
        "working_dir": str(tmp_path),
        "pip": ["requests"],
        "excludes": ["*.bin"],
    }
    given = {where: runtime_env if where == "runtime_env" else {"runtime_env": runtime_env}}

    options = DeploymentOptions.of(given)

    assert {"FLAVOUR": "sour"} == options.env_vars
    assert str(tmp_path) == options.working_dir
    assert ("requests",) == options.pip
    assert options == DeploymentOptions.from_json(options.to_json())


def test_a_relative_path_is_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "code") == DeploymentOptions.of({"working_dir": "code"}).working_dir


def test_what_is_written_beside_it_wins() -> None:
    options = DeploymentOptions.of(
        {
            "env_vars": {"A": "beside"},
            "ray_actor_options": {"num_cpus": 2, "runtime_env": {"env_vars": {"A": "inside"}}},
        }
    )
    assert ({"A": "beside"}, 2) == (options.env_vars, options.resources.num_cpus)


def test_packages_are_a_list_or_a_file_or_a_mapping(tmp_path: Path) -> None:
    listed = tmp_path / "requirements.txt"
    listed.write_text("# ours\nrequests==2\n\n  numpy\n")

    for value in (["requests==2", "numpy"], str(listed), {"packages": str(listed)}):
        options = DeploymentOptions.of({"runtime_env": {"pip": value}})
        assert ("requests==2", "numpy") == options.pip
    assert ("numpy",) == DeploymentOptions.of({"runtime_env": {"uv": ["numpy"]}}).pip


def test_files_may_include_others_and_name_paths(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "ours-1.0-py3-none-any.whl").touch()
    (tmp_path / "sub" / "base.txt").write_text("../ours-1.0-py3-none-any.whl\n-c limits.txt\n")
    listed = tmp_path / "requirements.txt"
    listed.write_text("-r sub/base.txt\nzebra \\\n    ==1.0\napple\n")

    options = DeploymentOptions.of({"pip": str(listed)})

    wheel, limits, zebra, apple = options.pip
    assert str(tmp_path / "ours-1.0-py3-none-any.whl") == wheel
    assert f"-c {tmp_path / 'sub' / 'limits.txt'}" == limits
    # In the order of the file.
    assert (["zebra", "==1.0"], "apple") == (zebra.split(), apple)


@pytest.mark.parametrize(
    ("runtime_env", "text"),
    [
        ({"conda": "env"}, "'conda'.* is not supported: name the packages by 'pip'"),
        ({"image_uri": "x"}, "containers of your own"),
        ({"env": {}}, "known: env_vars, working_dir, pip, uv"),
        ({"pip": ["a"], "uv": ["b"]}, "keep one"),
        ({"pip": 7}, "a list of packages"),
        ({"pip": "/no/such/file"}, "No such file"),
        ({"pip": sys.executable}, "it is no text"),
        ({"pip": {"package": ["a"]}}, "did you mean 'packages'"),
        ({"working_dir": "s3://bucket/code.zip"}, "has to be fetched before"),
        ({"env_vars": {"A": 1}}, "a mapping of strings to strings"),
        ({"env_vars": {"A=B": "1"}}, "a name without '='"),
        ({"env_vars": {"": "1"}}, "a name without '='"),
        ({"env_vars": {"A": "1\0"}}, "no NUL"),
        ({"working_dir": "a\0b"}, "a path without NUL"),
        (["env_vars"], "a mapping with strings as keys"),
    ],
)
def test_what_replicas_cannot_be_given_is_refused(runtime_env: object, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        DeploymentOptions.of({"runtime_env": runtime_env})
