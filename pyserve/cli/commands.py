"""The command group, and the one place that turns errors into messages and exit statuses.

Exit statuses: 0 fine, 1 the mesh or the user's code said no, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import difflib
import gc
import importlib
import sys
from collections.abc import Mapping
from typing import NoReturn

import click

from pyserve.cli import INTERRUPTED
from pyserve.errors import DeploymentFailed, OptionError, PyserveError
from pyserve.garbage import end_uncollected, importing

_COMMANDS = {
    "build": ("pyserve.cli.build:build", "Write the file of applications."),
    "call": ("pyserve.cli.call:call", "Call a method of a running service."),
    "config": ("pyserve.cli.deploy:config", "Print what was deployed from files."),
    "cordon": ("pyserve.cli.deploy:cordon", "Take a replica, or a node, out of rotation."),
    "delete": ("pyserve.cli.deploy:delete", "Drain and end an application."),
    "deploy": ("pyserve.cli.deploy:deploy", "Make a file's applications those of the mesh."),
    "doctor": ("pyserve.cli.diagnosis:doctor", "Look for what is wrong, and say what to do."),
    "explain": ("pyserve.cli.activity:explain", "Say where the time of a call went."),
    "haproxy-config": (
        "pyserve.cli.haproxy_config:haproxy_config",
        "Write a configuration of HAProxy.",
    ),
    "ingress": ("pyserve.cli.start:ingress", "Run an ingress of a mesh that runs elsewhere."),
    "kubernetes": (
        "pyserve.cli.kubernetes:kubernetes",
        "Write what a mesh on Kubernetes consists of.",
    ),
    "logs": ("pyserve.cli.diagnosis:logs", "Print what the replicas of a deployment write."),
    "profile": ("pyserve.cli.diagnosis:profile", "Record where the time of a replica goes."),
    "proto": ("pyserve.cli.proto:proto", "Generate Python stubs for .proto files."),
    "replica": ("pyserve.cli.replica:replica", "Run one replica that joins a mesh by itself."),
    "run": ("pyserve.cli.run:run", "Run an application in the foreground."),
    "shutdown": ("pyserve.cli.deploy:shutdown", "Drain and end the mesh."),
    "start": ("pyserve.cli.start:start", "Run a mesh that stays."),
    "status": ("pyserve.cli.status:status", "Show what runs."),
    "top": ("pyserve.cli.activity:top", "Show what the mesh does now."),
    "uncordon": ("pyserve.cli.deploy:uncordon", "Take a cordoned replica, or node, back."),
    "viewing-key": (
        "pyserve.cli.admin:viewing_key",
        "Print the key that lets its owner look.",
    ),
}
# By their names in other tools.
_MEANT = {"list": "status", "ps": "status", "serve": "run", "stop": "shutdown", "test": "call"}


class _Commands(click.Group):
    """Imports a command's module when it is used, so that each starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module_name, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        with importing():
            command: click.Command = getattr(importlib.import_module(module_name), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command {args[0]!r}.{_hint(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _hint(name: str) -> str:
    """Return what was probably meant by a command that there is not."""
    meant = _MEANT.get(name)
    close = [meant] if meant else difflib.get_close_matches(name, _COMMANDS, n=1)
    return f" (Did you mean {close[0]!r}?)" if close else ""


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from pyserve.version import version

        click.echo(f"pyserve {version()}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
def commands() -> None:
    """Serve Python models as a mesh of gRPC services."""


def run_commands(arguments: list[str] | None) -> NoReturn:
    """Run the command line and exit."""
    status = _run(arguments)
    # The end of the interpreter ends grpc's threads wherever they are, also where they hold the
    # lock of a call. The finalizer of a call takes that lock, so none may be left until then:
    # errors and their tracebacks keep some alive.
    gc.collect()
    end_uncollected()
    sys.exit(status)


def _run(arguments: list[str] | None) -> str | int | None:
    """Run the command line; return what ``sys.exit`` takes."""
    try:
        commands.main(args=arguments, prog_name="pyserve", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except click.exceptions.Exit as request:
        return request.exit_code
    except SystemExit as request:
        return request.code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except CommandFailed as error:
        print_error(str(error), error.traceback)
        return 1
    except DeploymentFailed as error:
        print_failure(error)
        return 1
    except PyserveError as error:
        print_error(str(error), "")
        return 2 if isinstance(error, OptionError) else 1
    except Exception as error:
        from pyserve.installed import explain

        if (unfit := explain(error)) is None:
            raise
        print_error(str(unfit), "")
        return 1
    return 0


class CommandFailed(PyserveError):
    """A command cannot do what it was asked for.

    Args:
        message: What was wrong, where, and what to write instead.
        traceback: Of user code, "" where none is to blame.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


def print_failure(error: DeploymentFailed, application: str = "") -> None:
    """Show why a deployment cannot be brought up; of which application, if there are several."""
    where = f"application {application!r}: " if application else ""
    text = f"{where}deployment {error.deployment!r} failed: {error.summary}"
    print_error(text, error.remote_traceback)


def print_failures(failed: Mapping[str, DeploymentFailed]) -> None:
    """Show why applications cannot be brought up."""
    for application, error in failed.items():
        print_failure(error, application)


def print_error(message: str, traceback: str) -> None:
    """Show what was wrong, and where in the user's code."""
    label = click.style("Error:", fg="red", bold=True) if sys.stderr.isatty() else "Error:"
    click.echo(f"{label} {message}", err=True)
    if traceback:
        click.echo(f"\n{traceback.rstrip()}", err=True)
