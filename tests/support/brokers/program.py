"""The command line and the main loop that the broker programs of the tests share."""

import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from barnabas.broker.app import Broker
from barnabas.broker.observability.logging import configure


def arguments() -> tuple[Path, dict[str, str]]:
    """Return the directory and the broker's properties from the command line of `BrokerProcess`."""
    directory, *pairs = sys.argv[1:]
    return Path(directory), dict(pair.split("=", 1) for pair in pairs)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine on the event loop that brokers use."""
    configure(level="warn")
    uvloop.run(work)


async def go_on(broker: Broker) -> NoReturn:
    """Print the address of a started broker, and wait until it ends."""
    print(broker.bootstrap_servers, flush=True)
    await broker.failed.wait()
    raise SystemExit("the broker has failed")
