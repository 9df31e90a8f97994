"""A broker of a test cluster that has a fault: `python -m tests.integration.adversary.mutant_node`.

    ... MUTANT [DEVICE]     else as `barnabas.testing.child`

`MUTANT` is a fault of `cluster_mutants.py`, or empty. With `DEVICE` its disk loses with the process
what was not fsynced (`lossy_files.py`), and its machine comes up again with each start.
"""

import asyncio
import gc
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import uvloop

from barnabas.broker.doors import Doors, real_doors
from barnabas.broker.observability.logging import configure
from barnabas.config.broker import BrokerConfig
from barnabas.testing import child, node
from tests.integration.adversary.cluster_mutants import CLUSTER_MUTANTS
from tests.integration.adversary.lossy_files import restore


def lose_power_with(device: Path) -> None:
    """The broker's files are as lasting as those of a machine whose power fails."""

    def lossy_doors(config: BrokerConfig) -> Doors:
        (cache,) = config.log_dirs
        files = restore(device, Path(cache))
        return replace(real_doors(config), files=files, boot_id=str(uuid4()))

    node.real_doors = lossy_doors


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
