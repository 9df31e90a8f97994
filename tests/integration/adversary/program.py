"""What the programs of this folder have in common: a command line, and a broker that serves."""

import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from barnabas.broker.app import Broker
from barnabas.broker.observability.logging import configure


def arguments() -> tuple[Path, dict[str, str]]:
    """The directory and the broker's properties, as `BrokerProcess` gives them."""
    directory, *pairs = sys.argv[1:]
    return Path(directory), dict(pair.split("=", 1) for pair in pairs)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Do the work on the loop that brokers run on."""
    configure(level="warn")
    uvloop.run(work)


async def go_on(broker: Broker) -> NoReturn:
    """Tell where a broker that was started serves; ends with it."""
    print(broker.bootstrap_servers, flush=True)
    await broker.failed.wait()
    raise SystemExit("the broker could not go on")
