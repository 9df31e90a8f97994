"""A broker of a test cluster that has a fault: `python -m tests.integration.adversary.mutant_node`.

    ... MUTANT [DEVICE]     the rest as `barnabas.testing.child`

`MUTANT` is a fault of `cluster_mutants.py`, or empty. With `DEVICE` the broker's disk loses data
that was not fsynced when the process ends (`lossy_files.py`); each start is a start of its machine.
"""

import asyncio
import gc
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import uvloop

from barnabas.broker.observability.logging import configure
from barnabas.broker.platform import Platform, system_platform
from barnabas.config.broker import BrokerConfig
from barnabas.testing import child, node
from tests.integration.adversary.cluster_mutants import CLUSTER_MUTANTS
from tests.support.brokers.lossy_files import restore


def lose_power_with(device: Path) -> None:
    """Give the broker files that lose unsynced data, as on a machine that loses power."""

    def lossy_platform(config: BrokerConfig) -> Platform:
        (cache,) = config.log_dirs
        files = restore(device, Path(cache))
        return replace(system_platform(config), files=files, boot_id=str(uuid4()))

    node.system_platform = lossy_platform  # type: ignore[attr-defined]


def main() -> int:
    mutant, *device = sys.argv[1:]
    if mutant:
        CLUSTER_MUTANTS[mutant]()
    if device:
        lose_power_with(Path(device[0]))
    gc.disable()
    configure(level="info")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(child.main())


if __name__ == "__main__":
    sys.exit(main())
