"""The smallest state machine on a runtime: it keeps numbers."""

import asyncio
from collections.abc import Iterable
from typing import Any

from barnabas.broker.loop.slices import Slicer
from barnabas.coordinator.decision import Decision, Instant, TransactionWriter
from barnabas.coordinator.hosted_shard import Mode
from barnabas.coordinator.ports import Slices
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import TxnMarker
from tests.support.coordinator.harness import EPOCH, PRODUCER, FakeLog, Time

KEY = "key"


class Numbers:
    """The smallest state machine: it keeps the numbers that were committed."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.pending: dict[int, list[int]] = {}
        self.served = False

    @property
    def state(self) -> "Numbers":
        return self

    def encode(self, record: int) -> tuple[bytes, bytes | None]:
        return b"number", str(record).encode()

    def decode(self, key: bytes, value: bytes | None) -> int | None:
        return int(value) if key == b"number" and value is not None else None

    def replay(self, record: int, producer_id: int) -> None:
        if record == 666:
            raise ArithmeticError("a number that cannot be")
        if producer_id < 0:
            self.numbers.append(record)
        else:
            self.pending.setdefault(producer_id, []).append(record)

    def replay_marker(
        self, producer_id: int, producer_epoch: int, committed: bool
    ) -> Iterable[None]:
        assert producer_epoch == EPOCH
        numbers = self.pending.pop(producer_id, [])
        if 667 in numbers:
            raise ArithmeticError("a number that cannot become one")
        if committed:
            self.numbers += numbers
        return ()

    def loaded(self, _now: Instant) -> Decision[int, None]:
        self.served = True
        return Decision(None)


class Host:
    def __init__(self, *, slices: Slices | None = None, **options: Any) -> None:
        self.time = Time()
        self.log = FakeLog()
        self.faults: list[tuple[int, BaseException]] = []
        self.runtime = CoordinatorRuntime(
            lambda *_: Numbers(),
            clock=self.time,
            timers=self.time,
            slices=slices or Slicer(self.time.monotonic),
            write_timeout_ms=5000,
            load_buffer_bytes=1000,
            report=lambda index, error: self.faults.append((index, error)),
            **options,
        )

    async def load(self) -> "Host":
        self.runtime.elected(0, self.log)
        while self.runtime.loading:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return self

    @property
    def numbers(self) -> list[int]:
        return self.runtime.read(0, lambda shard: shard.numbers)

    @property
    def shard(self) -> Numbers:
        return self.runtime.read(0, lambda shard: shard)

    @property
    def pending(self) -> dict[int, list[int]]:
        return self.runtime.read(0, lambda shard: shard.pending)

    def write(
        self,
        *numbers: int,
        mode: Mode = Mode.EXCLUSIVE,
        producer: TransactionWriter | None = None,
    ) -> object:
        """Write numbers; the answer has the numbers that were committed when the decision was
        made."""
        return self.runtime.write(
            0,
            KEY,
            lambda *_: Decision(list(self.numbers), numbers, producer=producer),
            mode,
        )

    def end(self, producer_id: int = PRODUCER, *, committed: bool = True) -> object:
        return self.runtime.write_marker(0, TxnMarker(producer_id, EPOCH, 7, committed, 2))


def code_of_future(answer: object) -> ErrorCode:
    assert isinstance(answer, asyncio.Future)
    error = answer.exception()
    assert isinstance(error, KafkaError)
    return error.code
