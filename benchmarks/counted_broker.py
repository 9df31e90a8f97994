"""A broker for counts: `python -m benchmarks.counted_broker DIRECTORY key=value ...`.

It is that of `barnabas serve` but for its limits of time, which are as good as infinite. Callgrind
makes it about 50 times slower, so every request would exceed them, and the work of a broker that
makes room for others would be counted: about 8,000 instructions. And the late imports of handlers
would be counted as the work of an idle broker.
"""

import click

from barnabas.broker import app
from barnabas.broker.app import Broker
from barnabas.broker.loop import slices
from barnabas.broker.server import connection
from barnabas.cli.processes.broker import run_broker
from barnabas.cli.settings import LogOptions
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator import postponed
from tests.support.brokers.program import arguments

_LIMITS = {
    slices: ("TURN_S", "SLICE_S", "CROWD_S"),
    connection: ("TURN_S", "_NOTABLE_S"),
    app: ("_HANDLERS_AFTER_S",),
}
_ENDLESS_S = 3600.0


def main() -> None:
    for module, names in _LIMITS.items():
        for name in names:
            if not isinstance(vars(module)[name], float):
                raise TypeError(f"{module.__name__}.{name} is no time")
            setattr(module, name, _ENDLESS_S)
    # On a slow machine the records of transactions would come too far apart to share a batch.
    postponed.DELAY_MS = int(_ENDLESS_S * 1000)  # type: ignore[misc]
    directory, properties = arguments()
    config = BrokerConfig.from_properties({**properties, "log.dirs": str(directory)})
    run_broker(config, log=LogOptions("warn"), cluster_id="", on_started=_tell)


def _tell(broker: Broker, _config: BrokerConfig) -> None:
    click.echo(broker.bootstrap_servers)


if __name__ == "__main__":
    main()
