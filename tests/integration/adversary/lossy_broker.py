"""A broker on a disk that forgets: `python -m tests.integration.adversary.lossy_broker`.

... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed
"""

import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import uvloop

from barnabas.broker.app import Broker
from barnabas.broker.doors import real_doors
from barnabas.broker.observability.logging import configure
from barnabas.config.broker import BrokerConfig
from tests.integration.adversary.lossy_files import restore


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
    print(broker.bootstrap_servers, flush=True)
    await broker.failed.wait()
    raise SystemExit("the broker could not go on")


def main() -> None:
    directory, *pairs = sys.argv[1:]
    configure(level="warn")
    properties = dict(pair.split("=", 1) for pair in pairs)
    uvloop.run(serve(Path(directory), properties))


if __name__ == "__main__":
    main()
