"""A broker that kills itself between decision and marker:
  `python -m tests.integration.adversary.unmarked_broker`.

    ... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed

Its data directory is `DIRECTORY/data`. If `DIRECTORY/die` holds two numbers, n and m, it kills
itself (SIGKILL) in its nth committed transaction instead of writing marker m + 1, and at the latest
before the last marker: the decision is in the log, and some of the markers are not. If the file
holds a minus sign, COMMIT markers are held back until the file is removed.
"""

import os
import signal
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.marker_writer import Done, MarkerWrite, MarkerWriter
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.transaction.metadata import Markers
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.control import TxnMarker
from tests.support.brokers.program import arguments, go_on, run

HELD = "-"


class Lever:
    """Decides over each marker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._commits = 0
        self._left: int | None = None
        self._pending = 0
        self._kills_itself = False
        self._write = MarkerWriter._write
        self._send = MarkerSender.send

    def install(self) -> None:
        lever = self

        def send(sender: MarkerSender, index: int, epoch: int, markers: Markers, now: int) -> bool:
            lever.decided(markers)
            return lever._send(sender, index, epoch, markers, now)

        def write(writer: MarkerWriter, each: MarkerWrite) -> None:
            if lever.holds(each.marker):
                # An error that the sender retries without end.
                each.done(ErrorCode.REQUEST_TIMED_OUT)
            else:
                lever._write(writer, each._replace(done=lever.in_flight(each.done)))

        MarkerSender.send = send  # type: ignore[method-assign]
        # Each marker passes `_write`.
        MarkerWriter.put = lambda *_: False  # type: ignore[method-assign]
        MarkerWriter._write = write  # type: ignore[method-assign]

    def decided(self, markers: Markers) -> None:
        if markers.committed and self._path.exists() and self._path.read_text() != HELD:
            self._commits += 1
            last, written = map(int, self._path.read_text().split())
            if self._commits == last:
                self._left = min(written, len(markers.partitions) - 1)

    def holds(self, marker: TxnMarker) -> bool:
        if self._left is not None and marker.committed:
            if self._left == 0:
                self._kills_itself = True
                self._die_once_written()
                return True
            self._left -= 1
        return marker.committed and self._path.exists() and self._path.read_text() == HELD

    def in_flight(self, done: Done) -> Done:
        """Count a marker as being written; the marker of a group also waits for the group's
        offsets."""
        self._pending += 1

        def written(error: ErrorCode) -> None:
            self._pending -= 1
            if error is not ErrorCode.NONE and self._left is not None:
                # After a start the offsets' coordinator may still be loading.
                self._left += 1
            done(error)
            self._die_once_written()

        return written

    def _die_once_written(self) -> None:
        if self._kills_itself and not self._pending:
            self._path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


async def serve(directory: Path, properties: dict[str, str]) -> None:
    data = directory / "data"
    broker = Broker(BrokerConfig.from_properties({**properties, "log.dirs": str(data)}))
    await broker.start()
    await go_on(broker)


def main() -> None:
    directory, properties = arguments()
    Lever(directory / "die").install()
    run(serve(directory, properties))


if __name__ == "__main__":
    main()
