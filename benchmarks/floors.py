"""The floor of a broker: a program in C.

It reads the frames of the raw client, writes the same bytes to a file and sends answers of the same
size. What a broker costs beyond it is its own work: checks, state, offsets, indexes.
"""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

from barnabas.protocol.codec import encode
from barnabas.protocol.header import encode_response_header
from barnabas.protocol.messages import add_partitions_to_txn, end_txn, fetch, produce
from barnabas.protocol.schema import Api
from benchmarks import raw
from benchmarks.systems import System
from tests.support.ports import free_port

_MARKER, _DECISION = 78, 180
"""Bytes of a marker's batch, and of a batch of the transaction log on average."""
IN_C = "floor in C"


class Answer(NamedTuple):
    """The appends and the answer of a request of one API."""

    key: int
    answer: bytes
    skip: int = -1
    """The bytes of a frame before its records; -1 if none are written."""
    tail: int = 0
    """The bytes of a frame behind its records."""
    appends: tuple[int, ...] = ()
    """The sizes of further appends, to another file."""
    stored: int = 0
    """The bytes of the file that are sent behind the answer."""

    def packed(self) -> bytes:
        """Return the form that the program reads, with integers of this machine."""
        numbers = [self.key, self.skip, self.tail, len(self.appends), *self.appends]
        numbers += [self.stored, len(self.answer)]
        return pack(f"={len(numbers)}i", *numbers) + self.answer


class Floor(System):
    """The program. Each topic has a process of its own."""

    name = IN_C

    def __init__(self, directory: Path) -> None:
        super().__init__(IN_C, directory, free_port())
        self._directory, self._program = directory, directory / "floor"
        source = Path(__file__).with_name("floor.c")
        subprocess.run(["cc", "-O2", "-o", str(self._program), str(source)], check=True)

    @contextmanager
    def serving(self, _topic: str, answers: Sequence[Answer] = ()) -> Iterator[None]:
        """Run the process with these answers."""
        files = [self._directory / f"floor-{name}" for name in ("records", "log", "answers")]
        packed = b"".join(answer.packed() for answer in answers)
        files[-1].write_bytes(pack("=i", len(answers)) + packed)
        self._process = subprocess.Popen([self._program, str(self.port), *files])
        try:
            yield
        finally:
            self._process.kill()
            self._process.wait()
            for file in files:
                file.unlink(missing_ok=True)

    def leader(self, _topic: str) -> raw.Client:
        return raw.connect(self.port)

    def coordinator(self, _key: str, _kind: int = raw.TRANSACTION) -> raw.Client:
        return raw.connect(self.port)

    def producer(self, transactional_id: str | None) -> raw.Producer:
        return raw.Producer(transactional_id, 1000, 0)


def why_not() -> str | None:
    """Return the reason why the program cannot be built; None if it can."""
    return None if shutil.which("cc") else "`cc` is not installed"


def produced(topic: str, batch: raw.Batch) -> Answer:
    """Return the answer to a Produce."""
    partition = {"index": 0, "error_code": 0, "base_offset": 0, "log_start_offset": 0}
    topics = [{"name": topic, "partition_responses": [partition]}]
    answer = _frame(produce.API, raw.PRODUCE, {"responses": topics})
    tail = len(batch.frame) - batch.at - batch.size
    return Answer(produce.API.key, answer, skip=batch.at, tail=tail)


def fetched(topic: str, stored: int) -> Answer:
    """Return the answer to a Fetch of one batch."""
    partition = {
        "partition_index": 0,
        "high_watermark": 0,
        "aborted_transactions": None,
        "records": bytes(stored),
    }
    topics = [{"topic": topic, "partitions": [partition]}]
    answer = _frame(fetch.API, raw.FETCH, {"responses": topics})
    return Answer(fetch.API.key, answer[:-stored], stored=stored)


def transacted(topic: str) -> list[Answer]:
    """Return the answers to AddPartitionsToTxn and EndTxn, with the appends of a transaction:
    the partition, then the decision, the marker and the end."""
    topics = [{"name": topic, "results_by_partition": [{"partition_index": 0}]}]
    added = _frame(add_partitions_to_txn.API, raw.ADD, {"results_by_topic_v3_and_below": topics})
    ended = _frame(end_txn.API, raw.END, {})
    return [
        Answer(add_partitions_to_txn.API.key, added, appends=(_DECISION,)),
        Answer(end_txn.API.key, ended, appends=(_DECISION, _MARKER, _DECISION)),
    ]


def _frame(api: Api, version: int, response: dict[str, Any]) -> bytes:
    body = encode(raw.message(api.response, response), version)
    body = encode_response_header(api.key, version, 0) + body
    return len(body).to_bytes(4, "big") + body
