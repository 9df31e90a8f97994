"""`barnabas debug`: what a bug report needs."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.common import Target, cluster_options, http_options
from barnabas.cli.files import replace_file
from barnabas.cli.help import Group
from barnabas.cli.tables import tell
from barnabas.operations.answers.debug import Part, WrittenBundle

if TYPE_CHECKING:
    from barnabas.operations.broker_http import HttpAccess


@click.group(cls=Group)
def debug() -> None:
    """Collect what a bug report needs."""


@debug.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The new file.  [default: barnabas-bundle-TIME.zip]",
)
@click.option(
    "--log",
    "logs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Take the last 10 MiB of this log file too.",
)
@http_options
@cluster_options
def bundle(
    target: Target, output: Path | None, logs: tuple[Path, ...], access: "HttpAccess"
) -> None:
    """Write a zip file with versions, configurations, metadata, metrics, events and logs.

    It has no records and no passwords, but names of topics, groups and hosts: the file README.txt
    in it lists its parts. Metrics, stacks and events come from brokers with metrics.listener. A
    part that cannot be had is named, and the others are there.
    """
    from barnabas.cli import bundle as parts

    path = output or Path(time.strftime("barnabas-bundle-%Y%m%dT%H%M%SZ.zip", time.gmtime()))
    if path.exists():
        raise click.ClickException(f"{path} exists already")
    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"{path}: there is no such directory")
    made = parts.Bundle()
    parts.add_client(made, target.properties)
    parts.add_logs(made, logs)
    reached = False
    try:
        endpoints = target.run(lambda cluster: parts.add_cluster(made, cluster))
    except parts.NO_ANSWER as error:
        made.fail("cluster", error)
    else:
        reached = True
        parts.add_endpoints(made, endpoints, access)
    content, rows = made.zipped()
    replace_file(path, content)
    for each in made.problems:
        tell(f"missing: {each}", err=True)
    if target.as_json:
        target.answer(WrittenBundle(file=str(path), parts=rows, problems=made.problems))
    else:
        target.show(Part, rows)
        tell(f"Wrote {path}: read it before you send it.")
    if not reached:
        raise click.exceptions.Exit(1)
