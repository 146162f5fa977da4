"""``pyserve kubernetes``: what somebody applies to have a mesh on Kubernetes."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyserve.cli.commands import CommandFailed

if TYPE_CHECKING:
    from pyserve.config.files import MeshFile
    from pyserve.config.schema import DeploymentSchema

_TOKEN_BYTES = 32
# Of what tells one job from those before. Arbitrary.
_DEPLOY_BYTES = 5
# Of the launcher's options these are told by options of the command.
_TOLD = ("name", "namespace", "token_secret", "tls_secret")


@click.group(short_help="Write what a mesh on Kubernetes consists of.")
def kubernetes() -> None:
    """Have a mesh on a cluster of Kubernetes."""


@kubernetes.command(short_help="Print the objects that one applies.")
@click.argument("file", required=False, metavar="[FILE.yaml]", type=click.Path(path_type=Path))
@click.option("--image", help="With pyserve and the code of the applications.")
@click.option("--name", default="pyserve", show_default=True, help="What its objects begin with.")
@click.option("--namespace", default="pyserve", show_default=True, help="Where all of it is.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="The mesh token, hexadecimal. [default: a new one]",
)
@click.option("--tls-secret", default="", help="A Secret with certificates between processes.")
@click.option("--storage", default="1Gi", show_default=True, help="Of the controller's volume.")
@click.option("--storage-class", help="Of that volume. [default: the cluster's]")
@click.option(
    "--ingress",
    type=click.Choice(["Deployment", "DaemonSet"], case_sensitive=False),
    default="Deployment",
    show_default=True,
    help="A number of ingresses, or one on each node.",
)
@click.option(
    "--ingress-replicas", type=click.IntRange(min=1), default=2, show_default=True, help="How many."
)
@click.option(
    "--service-type",
    type=click.Choice(["ClusterIP", "NodePort", "LoadBalancer"]),
    default="ClusterIP",
    show_default=True,
    help="How clients reach the ingresses.",
)
def manifests(file: Path | None, token_file: Path | None, ingress: str, **options: Any) -> None:
    """Print the objects of a mesh, for `kubectl apply -f -`.

    FILE.yaml is what `pyserve deploy` takes: a job gives it to the mesh, a new one with each print,
    and `launcher` in it says more about pods. Each run without --token-file makes another token, so
    keep what it has printed.
    """
    from pyserve.config.files import MeshFile, dump_all
    from pyserve.launch.on_kubernetes.manifests import ManifestSettings, with_reasons
    from pyserve.launch.on_kubernetes.manifests import manifests as objects

    found = None if file is None else MeshFile.read(file)
    launcher = _launcher(found)
    image = options.pop("image") or launcher.pop("image", "")
    if not image:
        raise click.UsageError("no image is named; give --image, or launcher.image in the file")
    settings = ManifestSettings(
        image=str(image),
        token=secrets.token_hex(_TOKEN_BYTES) if token_file is None else _token(token_file),
        applications="" if found is None else _applications(found),
        deploy=secrets.token_hex(_DEPLOY_BYTES),
        budgets={} if found is None else _budgets(found),
        ingress_kind="DaemonSet" if ingress.lower() == "daemonset" else "Deployment",
        launcher=launcher,
        **options,
    )
    click.echo(with_reasons(dump_all(objects(settings))), nl=False)


def _launcher(file: MeshFile | None) -> dict[str, object]:
    """Return the options of the launcher that a file names."""
    config = None if file is None else file.content.launcher
    if config is None:
        return {}
    if config.name != "kubernetes":
        raise CommandFailed(
            f"the file names the launcher {config.name!r}; write launcher: kubernetes, or leave "
            f"that out"
        )
    from pyserve.launch.on_kubernetes.site import LauncherOptions

    LauncherOptions.read(config.options)
    if told := sorted(set(_TOLD) & config.options.keys()):
        raise CommandFailed(f"launcher.{told[0]} of the file is told by --{told[0]} here")
    return dict(config.options)


def _token(path: Path) -> str:
    from pyserve.control.home import read_token

    return read_token(path, "--token-file").hex()


def _applications(file: MeshFile) -> str:
    """Return the file for the mesh, which has its launcher already."""
    from pyserve.config.files import dump

    return dump({name: value for name, value in file.values.items() if name != "launcher"})


def _budgets(file: MeshFile) -> dict[tuple[str, str], int]:
    """Return what an eviction leaves of the deployments whose number is written."""
    return {
        (application.name, deployment.name): least - 1
        for application in file.content.applications
        for deployment in application.deployments
        if (least := _least(deployment)) > 1
    }


def _least(deployment: DeploymentSchema) -> int:
    """Return how many replicas there always are; 1 where the file does not say."""
    scaling = deployment.autoscaling_config
    if isinstance(scaling, dict):
        return int(scaling.get("min_replicas", 1))
    return deployment.num_replicas if isinstance(deployment.num_replicas, int) else 1
