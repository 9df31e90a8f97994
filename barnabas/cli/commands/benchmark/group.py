"""`barnabas benchmark`: the performance of a cluster, measured with this client."""

import click

from barnabas.cli.commands.benchmark.eos import eos
from barnabas.cli.commands.benchmark.produce import produce
from barnabas.cli.help import Group


@click.group(cls=Group)
def benchmark() -> None:
    """Measure the performance of a cluster with one client."""


benchmark.add_command(produce)
benchmark.add_command(eos)
