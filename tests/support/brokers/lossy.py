"""A broker on a disk that loses unsynced data: `python -m tests.support.brokers.lossy`.

... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed
"""

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from barnabas.broker.app import Broker
from barnabas.broker.platform import system_platform
from barnabas.config.broker import BrokerConfig
from tests.support.brokers.lossy_files import restore
from tests.support.brokers.program import arguments, go_on, run


async def serve(directory: Path, properties: dict[str, str]) -> None:
    cache = directory / "cache"
    config = BrokerConfig.from_properties({**properties, "log.dirs": str(cache)})
    platform = replace(
        system_platform(config),
        files=restore(directory / "device", cache),
        # Each start is a start of the machine: its page cache is lost.
        boot_id=str(uuid4()),
    )
    broker = Broker(config, platform=platform)
    await broker.start()
    await go_on(broker)


def main() -> None:
    run(serve(*arguments()))


if __name__ == "__main__":
    main()
