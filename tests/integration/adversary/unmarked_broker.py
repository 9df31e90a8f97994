"""A broker that dies between decision and marker:
`python -m tests.integration.adversary.unmarked_broker`.

    ... DIRECTORY key=value ...     with Kafka's keys; serves until it is killed

Its data lie in `DIRECTORY/data`. Where `DIRECTORY/die` holds two numbers, n and m, it kills itself
(SIGKILL) in its nth committed transaction in place of writing one more marker than m, and in any
case before the last: the decision is in the log, and a part of the markers is not. Where the file
holds a minus instead, COMMIT markers are held back until the file is gone.
"""

import os
import signal
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.broker.coordination.marker_sender import MarkerSender
from barnabas.broker.coordination.marker_writer import Done, MarkerWriter, TxnMarker
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.transaction.ending import Markers
from barnabas.protocol.errors import ErrorCode
from tests.integration.adversary.program import arguments, go_on, run

HELD = "-"


class Lever:
    """Decides over each marker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._commits = 0
        self._left: int | None = None
        self._flying = 0
        self._dies = False
        self._write = MarkerWriter.write
        self._send = MarkerSender.send

    def install(self) -> None:
        lever = self

        def send(sender: MarkerSender, index: int, epoch: int, markers: Markers) -> None:
            lever.decided(markers)
            lever._send(sender, index, epoch, markers)

        def write(
            writer: MarkerWriter, topic: str, index: int, marker: TxnMarker, done: Done
        ) -> None:
            if lever.holds(marker):
                # What the sender tries again, without end.
                done(ErrorCode.REQUEST_TIMED_OUT)
            else:
                lever._write(writer, topic, index, marker, lever.flies(done))

        MarkerSender.send = send  # type: ignore[method-assign]
        MarkerWriter.write = write  # type: ignore[method-assign]

    def decided(self, markers: Markers) -> None:
        if markers.committed and self._path.exists() and self._path.read_text() != HELD:
            self._commits += 1
            last, written = map(int, self._path.read_text().split())
            if self._commits == last:
                self._left = min(written, len(markers.partitions) - 1)

    def holds(self, marker: TxnMarker) -> bool:
        if self._left is not None and marker.committed:
            if self._left == 0:
                self._dies = True
                self._die_once_written()
                return True
            self._left -= 1
        return marker.committed and self._path.exists() and self._path.read_text() == HELD

    def flies(self, done: Done) -> Done:
        """A marker is being written: a group's waits for what its offsets wait for."""
        self._flying += 1

        def landed(error: ErrorCode) -> None:
            self._flying -= 1
            done(error)
            self._die_once_written()

        return landed

    def _die_once_written(self) -> None:
        if self._dies and not self._flying:
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
