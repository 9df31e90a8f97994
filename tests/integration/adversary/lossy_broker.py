"""A broker on a disk that forgets: `python -m tests.integration.adversary.lossy_broker`.

... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed
"""

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from barnabas.broker.app import Broker
from barnabas.broker.doors import real_doors
from barnabas.config.broker import BrokerConfig
from tests.integration.adversary.lossy_files import restore
from tests.integration.adversary.program import arguments, go_on, run


async def serve(directory: Path, properties: dict[str, str]) -> None:
    cache = directory / "cache"
    config = BrokerConfig.from_properties({**properties, "log.dirs": str(cache)})
    doors = replace(
        real_doors(config),
        files=restore(directory / "device", cache),
        # The machine comes up again each time: its page cache is gone.
        boot_id=str(uuid4()),
    )
    broker = Broker(config, doors=doors)
    await broker.start()
    await go_on(broker)


def main() -> None:
    run(serve(*arguments()))


if __name__ == "__main__":
    main()
