"""`barnabas benchmark`: what this client gets out of a cluster, with a progress bar."""

import click

from barnabas.cli.benchmark_eos import eos
from barnabas.cli.benchmark_produce import produce


@click.group()
def benchmark() -> None:
    """Measure what a cluster does for one client."""


benchmark.add_command(produce)
benchmark.add_command(eos)
