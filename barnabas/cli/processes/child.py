"""One broker as a child process: `python -m barnabas.cli.processes.child`.

The first line of standard input is the `StartCommand` of the supervisor. The end of standard input
tells that the parent is dead. One line on standard output tells the parent that the broker serves.
With --faults further lines of both are calls, and their answers (`barnabas/faults/remote.py`).
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.processes.broker_properties import SOCKET
from barnabas.cli.settings import LogOptions

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.platform import Platform
    from barnabas.cli.processes.broker import Stop
    from barnabas.config.broker import BrokerConfig

    SetFaults = Callable[[asyncio.StreamReader, Stop], Awaitable[None]]


async def _stop_with_parent(
    stop: "Stop", *, parent_has_store: bool, faults: "SetFaults | None" = None
) -> None:
    """Set `stop` when the parent dies; take its calls until then.

    If the parent served the metadata store, no other broker can become a leader any more, so the
    broker does not hand over its partitions.
    """
    from barnabas.broker.pipes import read_pipe

    commands = read_pipe(sys.stdin.fileno())

    def parent_died(_: "asyncio.Task[Any]") -> None:
        stop.hand_over = not parent_has_store
        stop.set()

    async def take_all() -> None:
        await (commands.read() if faults is None else faults(commands, stop))

    asyncio.create_task(take_all()).add_done_callback(parent_died)


def _with_faults(
    config: "BrokerConfig", calls: Sequence[Any], answers: int
) -> "tuple[Platform, SetFaults]":
    """Return the platform of a broker that has faults, and the function that sets them."""
    from barnabas.broker.platform import system_platform
    from barnabas.faults.broker_faults import BrokerFaults
    from barnabas.faults.remote import serve_calls

    faults = BrokerFaults(config, system_platform(config))

    async def release_at(stop: "Stop") -> None:
        await stop.wait()
        await faults.release()

    async def set_faults(commands: asyncio.StreamReader, stop: "Stop") -> None:
        for method, arguments in calls:
            await faults.tell(method, **arguments)
        # Held requests and cut links would delay the stop.
        releasing = asyncio.create_task(release_at(stop))
        await serve_calls(faults, commands, answers)
        releasing.cancel()
        await faults.release()

    return faults.platform, set_faults


def _report_started(output: int, broker: "Broker", config: "BrokerConfig") -> None:  # noqa: ARG001
    os.write(output, json.dumps({"id": 0, "is": broker.bootstrap_servers}).encode() + b"\n")


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
        output, platform, faults = take_output(), None, None
        if command["calls"] is not None:
            platform, faults = _with_faults(config, command["calls"], output)
        parent_has_store = SOCKET in command["properties"]
        run_broker(
            config,
            log=LogOptions(*command["log"]),
            cluster_id=command["cluster_id"],
            on_started=partial(_report_started, output),
            watch=partial(_stop_with_parent, parent_has_store=parent_has_store, faults=faults),
            platform=platform,
            log_fields={"broker": int(broker_id)},
        )
    except (click.ClickException, OSError, ValueError) as error:
        click.echo(f"broker {broker_id}: {explain(error)}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
