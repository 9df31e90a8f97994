"""A broker that times its event loop: `python -m tests.integration.adversary.timed_broker`.

    ... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed

See `loop_hold`. The garbage collector is treated as by `barnabas serve`.
"""

import gc
import sys
from pathlib import Path

import uvloop

from barnabas.broker.app import Broker
from barnabas.broker.observability.logging import configure
from barnabas.config.broker import BrokerConfig
from tests.integration.adversary.loop_hold import LoopHold


async def serve(directory: Path, properties: dict[str, str]) -> None:
    config = BrokerConfig.from_properties({**properties, "log.dirs": str(directory)})
    broker = Broker(config)
    gc.disable()
    await broker.start()
    gc.freeze()
    gc.enable()
    LoopHold(directory).start()
    print(broker.bootstrap_servers, flush=True)
    await broker.failed.wait()
    raise SystemExit("the broker could not go on")


def main() -> None:
    directory, *pairs = sys.argv[1:]
    configure(level="warn")
    uvloop.run(serve(Path(directory), dict(pair.split("=", 1) for pair in pairs)))


if __name__ == "__main__":
    main()
