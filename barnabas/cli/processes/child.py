"""One broker as a child process: `python -m barnabas.cli.processes.child`.

The first line of standard input is the `StartCommand` of the supervisor. The end of standard input
tells that the parent is dead. One line on standard output tells the parent that the broker serves.
"""

import asyncio
import json
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from barnabas.cli.processes.broker_properties import SOCKET
from barnabas.cli.settings import LogOptions

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cli.processes.broker import Stop
    from barnabas.config.broker import BrokerConfig


async def _stop_with_parent(stop: "Stop", *, parent_has_store: bool) -> None:
    """Set `stop` when the parent dies.

    If the parent served the metadata store, no other broker can become a leader any more, so the
    broker does not hand over its partitions.
    """
    from barnabas.broker.pipes import read_pipe

    commands = read_pipe(sys.stdin.fileno())

    def parent_died(_: "asyncio.Task[bytes]") -> None:
        stop.hand_over = not parent_has_store
        stop.set()

    asyncio.create_task(commands.read()).add_done_callback(parent_died)


def _report_started(output: int, broker: "Broker", config: "BrokerConfig") -> None:  # noqa: ARG001
    os.write(output, json.dumps({"serves": broker.bootstrap_servers}).encode() + b"\n")


def main() -> int:
    """Run the broker until the parent or a signal stops it; return the exit code."""
    from barnabas.broker.pipes import take_output
    from barnabas.cli.failures import explain
    from barnabas.cli.processes.broker import run_broker
    from barnabas.config.broker import BrokerConfig

    # Unbuffered: a buffer would swallow what follows the first line.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        command = json.loads(stdin.readline())
    broker_id = command["properties"]["broker.id"]
    try:
        config = BrokerConfig.from_properties(command["properties"], strict=command["strict"])
        run_broker(
            config,
            log=LogOptions(*command["log"]),
            cluster_id=command["cluster_id"],
            on_started=partial(_report_started, take_output()),
            watch=partial(_stop_with_parent, parent_has_store=SOCKET in command["properties"]),
            log_fields={"broker": int(broker_id)},
        )
    except (click.ClickException, OSError, ValueError) as error:
        click.echo(f"broker {broker_id}: {explain(error)}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
