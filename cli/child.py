"""A broker under a parent that runs several: `python -m barnabas.cli.child`.

The first line of standard input says what to run; the end of the input, that the parent is dead.
One line of standard output says that it serves.
"""

import asyncio
import json
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from barnabas.cli.several import SOCKET

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cli.serve import Stop
    from barnabas.config.broker import BrokerConfig


async def _follow_parent(stop: "Stop", *, store_is_parents: bool) -> None:
    """Stops with the parent: its store is gone too, and nobody can be made a leader any more."""
    from barnabas.broker.pipes import read_pipe

    commands = read_pipe(sys.stdin.fileno())

    def ended(_: "asyncio.Task[bytes]") -> None:
        stop.hand_over = not store_is_parents
        stop.set()

    asyncio.create_task(commands.read()).add_done_callback(ended)


def _say(output: int, broker: "Broker", config: "BrokerConfig") -> None:  # noqa: ARG001
    os.write(output, json.dumps({"serves": broker.bootstrap_servers}).encode() + b"\n")


def main() -> int:
    """Runs until the parent wants it otherwise; the exit code."""
    from barnabas.broker.pipes import take_output
    from barnabas.cli.failures import explain
    from barnabas.cli.serve import run
    from barnabas.config.broker import BrokerConfig

    # Not through a buffer, which would keep what follows the line.
    with open(0, "rb", buffering=0, closefd=False) as orders_in:
        orders = json.loads(orders_in.readline())
    broker = orders["properties"]["broker.id"]
    try:
        config = BrokerConfig.from_properties(orders["properties"], strict=orders["strict"])
        run(
            config,
            log_level=orders["log_level"],
            cluster_id=orders["cluster_id"],
            started=partial(_say, take_output()),
            follow=partial(_follow_parent, store_is_parents=SOCKET in orders["properties"]),
            logged={"broker": int(broker)},
        )
    except (click.ClickException, OSError, ValueError) as error:
        click.echo(f"broker {broker}: {explain(error)}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
