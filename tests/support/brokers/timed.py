"""A broker that times its event loop: `python -m tests.support.brokers.timed`.

    ... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed

See `loop_hold`. The garbage collector is treated as by `barnabas serve`.
"""

import gc
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.config.broker import BrokerConfig
from tests.support.brokers.loop_hold import LoopHold
from tests.support.brokers.program import arguments, go_on, run


async def serve(directory: Path, properties: dict[str, str]) -> None:
    config = BrokerConfig.from_properties({**properties, "log.dirs": str(directory)})
    broker = Broker(config)
    gc.disable()
    await broker.start()
    broker.rule_collector()
    LoopHold(directory).start()
    await go_on(broker)


def main() -> None:
    run(serve(*arguments()))


if __name__ == "__main__":
    main()
