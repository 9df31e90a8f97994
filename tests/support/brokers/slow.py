"""A broker with a slow disk: `python -m tests.support.brokers.slow`.

    ... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed

Its log directories are `DIRECTORY/fast` and `DIRECTORY/slow`. An fsync in the slow one takes longer
by the seconds in `DIRECTORY/delay`, which may change while the broker runs. `loop_hold` measures
its event loop.
"""

import os
import time
from dataclasses import replace
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.broker.platform import system_platform
from barnabas.config.broker import BrokerConfig
from barnabas.storage.files.files import OsFile, OsFiles
from tests.support.brokers.loop_hold import LoopHold
from tests.support.brokers.program import arguments, go_on, run


class SlowFile(OsFile):
    """See `barnabas.storage.files.files.File`."""

    __slots__ = ("_delay",)

    def __init__(self, path: str, fd: int, delay: Path) -> None:
        super().__init__(path, fd)
        self._delay = delay

    def sync(self) -> None:
        time.sleep(float(self._delay.read_text()))
        super().sync()


class SlowFiles(OsFiles):
    """See `barnabas.storage.files.files.Files`."""

    def __init__(self, slow: Path, delay: Path) -> None:
        super().__init__()
        self._slow = f"{slow}/"
        self._delay = delay

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        if not path.startswith(self._slow):
            return file
        return SlowFile(path, os.dup(file._fd), self._delay)

    def sync_dir(self, path: str) -> None:
        if f"{path}/".startswith(self._slow):
            time.sleep(float(self._delay.read_text()))
        super().sync_dir(path)


async def serve(directory: Path, properties: dict[str, str]) -> None:
    fast, slow = directory / "fast", directory / "slow"
    config = BrokerConfig.from_properties({**properties, "log.dirs": f"{fast},{slow}"})
    files = SlowFiles(slow, directory / "delay")
    broker = Broker(config, platform=replace(system_platform(config), files=files))
    await broker.start()
    LoopHold(directory).start()
    await go_on(broker)


def main() -> None:
    run(serve(*arguments()))


if __name__ == "__main__":
    main()
