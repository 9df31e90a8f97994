"""A broker with a fault, which can also kill itself:
  `python -m tests.integration.adversary.mutant_broker`.

    ... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed

`mutant=NAME` is the fault, or the lever, of `mutants.py`. Its data directory is `DIRECTORY/data`.
If `DIRECTORY/die` holds two numbers, it kills itself (SIGKILL) right after an append, whose number
since the start lies between the two: in the middle of a request, before the response.
"""

import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from barnabas.broker.app import Broker
from barnabas.broker.platform import system_platform
from barnabas.broker.replication.partition import Partition
from barnabas.config.broker import BrokerConfig
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from tests.integration.adversary.mutants import LEVERS, MUTANTS
from tests.support.brokers.program import arguments, go_on, run


def die_after(appends: int) -> None:
    """Kill the process after that many appends by clients and coordinators."""
    append = Partition.append
    left = appends

    def last(partition: Partition, *args: Any, **options: Any) -> Any:
        nonlocal left
        appended = append(partition, *args, **options)
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return appended

    Partition.append = last  # type: ignore[method-assign]


async def serve(directory: Path, properties: dict[str, str]) -> None:
    config = BrokerConfig.from_properties({**properties, "log.dirs": str(directory / "data")})
    platform = system_platform(config)
    # A worker process would not have the fault.
    broker = Broker(config, platform=replace(platform, cleaner=InlineCleaner(platform.files)))
    await broker.start()
    await go_on(broker)


def main() -> None:
    directory, properties = arguments()
    mutant = properties.pop("mutant", "")
    if mutant:
        {**MUTANTS, **LEVERS}[mutant]()
    lives = directory / "die"
    if lives.exists():
        first, last = map(int, lives.read_text().split())
        die_after(random.randint(first, last))
    run(serve(directory, properties))


if __name__ == "__main__":
    main()
