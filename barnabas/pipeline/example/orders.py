"""The orders of the example: a stream with repeated, late and broken ones. Pure.

Record `n` depends on the seed and on `n` only. So a test or a verdict can say what the stream holds
without having kept it.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from random import Random
from typing import Final, NamedTuple

TOPIC: Final = "orders"
SUMS_TOPIC: Final = "order-sums"
BROKEN_TOPIC: Final = "broken-orders"

START: Final = datetime(2026, 3, 1, 9, tzinfo=UTC)
"""The time of the first order."""
LATE_BY: Final = timedelta(days=1)
"""Late orders are from the day before the start, so the minutes of the others stay as they are."""
DISORDER: Final = timedelta(seconds=20)
"""Orders arrive out of order by at most this time."""
REPEATED_WITHIN: Final = timedelta(seconds=60)
"""A repetition arrives at most this time after its order, unless fewer orders come."""
CLOSING_AFTER: Final = timedelta(minutes=10)
"""The closing order is this much later than the last one, which closes all minutes before."""

CENTS: Final[Mapping[str, tuple[str, int]]] = {
    "castle": ("books", 1250),
    "trial": ("books", 990),
    "letters": ("books", 1800),
    "teapot": ("kitchen", 3400),
    "kettle": ("kitchen", 4900),
    "lamp": ("home", 2750),
    "chair": ("home", 8900),
}
"""The category and price of each product."""
_PRODUCTS: Final = sorted(CENTS)


class Kind(Enum):
    """The kinds of records; the value is how many of 100 there are."""

    NEW = 88
    REPEATED = 5
    LATE = 3
    BROKEN = 4


class Order(NamedTuple):
    """An order before it becomes a record."""

    order_id: int
    time: datetime
    product: str
    quantity: int

    @property
    def value(self) -> bytes:
        """The value of the record, JSON."""
        time = self.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps({**self._asdict(), "time": time}).encode()

    @property
    def category(self) -> str:
        """The category of the product."""
        return CENTS[self.product][0]

    @property
    def cents(self) -> int:
        """The price of all pieces."""
        return CENTS[self.product][1] * self.quantity


class Record(NamedTuple):
    """A record of the stream; `order` is None if it is broken."""

    kind: Kind
    key: bytes
    value: bytes | None
    order: Order | None


class Sum(NamedTuple):
    """The orders of a minute and a category."""

    orders: int
    cents: int


class Orders:
    """The stream of a seed, with `per_minute` records for each minute of its own time."""

    def __init__(self, seed: int, per_minute: int) -> None:
        if per_minute < 1:
            raise ValueError("per_minute must be 1 or more")
        self._seed = seed
        self._step = timedelta(minutes=1) / per_minute
        self._reach = max(1, (REPEATED_WITHIN - DISORDER) // self._step)

    def record(self, number: int) -> Record:
        """Return the record at this position, from 0 on."""
        kind = self.kind(number)
        if kind is Kind.REPEATED:
            # Its value is exactly that of the order before.
            return self.record(self._repeated(number))._replace(kind=kind)
        order = self._order(number, kind)
        if kind is Kind.BROKEN:
            return Record(kind, b"%d" % number, _broken(order, self._random(number, "b")), None)
        return Record(kind, b"%d" % number, order.value, order)

    def kind(self, number: int) -> Kind:
        """Return the kind of the record at this position."""
        drawn = self._random(number, "kind").randrange(100)
        for kind in Kind:
            if drawn < kind.value:
                is_first = kind is Kind.REPEATED and self._repeated(number) < 0
                return Kind.NEW if is_first else kind
            drawn -= kind.value
        raise AssertionError(drawn)

    def closing(self, number: int) -> Record:
        """Return the record that ends a stream of `number` records."""
        order = Order(number, self._time(number) + CLOSING_AFTER, "castle", 1)
        return Record(Kind.NEW, b"%d" % number, order.value, order)

    def count(self, number: int) -> Counter[Kind]:
        """Return how many of the first `number` records are of each kind."""
        return Counter(map(self.kind, range(number)))

    def sums(self, number: int) -> dict[tuple[datetime, str], Sum]:
        """Return the sums of the first `number` records, without late ones, by minute."""
        sums: defaultdict[tuple[datetime, str], Sum] = defaultdict(lambda: Sum(0, 0))
        for order in self._new_orders(number):
            minute = order.time.replace(second=0, microsecond=0)
            before = sums[minute, order.category]
            sums[minute, order.category] = Sum(before.orders + 1, before.cents + order.cents)
        return dict(sums)

    def _new_orders(self, number: int) -> Iterator[Order]:
        for each in range(number):
            if self.kind(each) is Kind.NEW:
                yield self._order(each, Kind.NEW)

    def _repeated(self, number: int) -> int:
        """Return the position of the order that this record would repeat; -1 for none."""
        back = self._random(number, "back").randint(1, self._reach)
        for each in range(max(0, number - back), number):
            if self._random(each, "kind").randrange(100) < Kind.NEW.value:
                return each
        return -1

    def _order(self, number: int, kind: Kind) -> Order:
        random = self._random(number, "order")
        time = self._time(number) - DISORDER * random.random()
        if kind is Kind.LATE:
            time -= LATE_BY
        # Exact in JSON, which has milliseconds.
        time -= timedelta(microseconds=time.microsecond % 1000)
        return Order(number, time, random.choice(_PRODUCTS), random.randint(1, 5))

    def _time(self, number: int) -> datetime:
        return START + DISORDER + self._step * number

    def _random(self, number: int, purpose: str) -> Random:
        return Random(f"{self._seed}/{number}/{purpose}")


def _broken(order: Order, random: Random) -> bytes | None:
    """Return a value that cannot be parsed, in one of the ways in which values break."""
    value = order.value
    return random.choice(
        (
            value[: len(value) // 2],
            value.replace(b'"product"', b'"produkt"'),
            value.replace(b'"quantity": ', b'"quantity": "many", "was": '),
            b"\xff\xfe" + value,
            None,
        )
    )
