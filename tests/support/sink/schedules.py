"""Schedules of drivers on the model: drawn by a seed, or all of a small case."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from random import Random
from typing import NamedTuple

from barnabas.operations.sinks.decisions import decode
from barnabas.pipeline.sink.port import Fate
from barnabas.pipeline.sink.protocol import SinkError
from barnabas.pipeline.sink.recover import recover
from tests.support.sink.model import Model, ModelPort
from tests.support.sink.story import Driver, Protocols, Story, run_at_once

_EVENTS = (
    ("run", 60),
    ("step", 12),
    ("lose answer", 5),
    ("repeat late", 5),
    ("deliver late", 5),
    ("crash", 4),
    ("timeout", 5),
    ("depose", 5),
    ("new process", 3),
    ("recover", 2),
    ("empty batch", 3),
)


class ModelStory:
    """A story on the model, with its judge."""

    def __init__(self, protocols: type[Protocols], *, tasks: int = 2) -> None:
        self.model = Model(last_epoch=9)
        self.story = Story(
            lambda driver: ModelPort(self.model, driver),
            run_at_once,
            protocols=protocols,
            tasks=tasks,
        )

    def expire(self) -> None:
        self.story.history.append("the timeout passes")
        self.model.expire()

    def settle(self) -> None:
        self.model.write_markers()

    def open_ids(self) -> list[str]:
        return [each.transactional_id for each in self.model.list_open()]

    def depose(self, driver: Driver) -> None:
        """Let a driver read from deposed brokers, or from the others again."""
        port = driver.port
        assert isinstance(port, ModelPort)
        port.deposed = self.model.view() if port.deposed is None else None

    def recover(self) -> None:
        """Let an operator recover the sink, while drivers sleep."""
        self.story.history.append("recover")
        with suppress(SinkError):
            run_at_once(recover(ModelPort(self.model, "sink.driver"), "sink"))

    def finish(self) -> None:
        for driver in self.story.drivers:
            assert isinstance(driver.port, ModelPort)
            driver.port.deposed = None
        self.story.finish()
        self.model.write_markers()
        written = self.model.written
        self.story.judge(
            (each.rows for each in written if each.fate is Fate.COMMITTED),  # type: ignore[misc]
            self.model.list_open(),
        )
        decided = [decode(value).named for each, value in self.model.decisions if each.committed]
        named = frozenset[object]().union(*decided)
        for each in written:
            if (each.transactional_id, each.ongoing) in named:
                assert each.committed, f"{each} was decided"


def random_story(seed: int, protocols: type[Protocols], *, without: Sequence[str] = ()) -> None:
    """Run a story that a seed draws, without some events. Raises AssertionError."""
    random = Random(seed)
    world = ModelStory(protocols)
    story = world.story
    names, weights = zip(*(each for each in _EVENTS if each[0] not in without), strict=True)
    for _ in range(random.randrange(4, 20)):
        alive = story.alive
        if not alive or (len(alive) < 3 and random.random() < 0.2):
            alive = [story.start_driver()]
        driver = random.choice(alive)
        match random.choices(names, weights)[0]:
            case "run":
                for _ in range(random.choice((2, 4, 8, 16, 32))):
                    driver.step()
            case "step":
                driver.step()
            case "lose answer":
                driver.step(lose_answer=True)
            case "repeat late":
                driver.step(repeat_late=True)
            case "deliver late" if story.late:
                story.deliver_late(random.randrange(len(story.late)))
            case "crash":
                driver.crash()
            case "timeout":
                world.expire()
            case "depose":
                world.depose(driver)
            case "new process":
                story.start_process()
            case "recover":
                world.recover()
            case "empty batch":
                story.start_driver(empty=True)
    world.finish()


class Schedule(NamedTuple):
    """Two drivers: the first runs, the second, the first again, then the second to its end."""

    first: int
    second: int
    again: int
    event: str


def all_schedules(first: int, second: int, again: int) -> Iterator[Schedule]:
    """Yield every schedule with fewer requests than these."""
    yield from map(Schedule._make, product(range(first), range(second), range(again), EVENTS))


EVENTS = ("", "timeout", "crash")


def run_schedule(schedule: Schedule, protocols: type[Protocols]) -> None:
    """Run a story with one task in each batch. Raises AssertionError."""
    world = ModelStory(protocols, tasks=1)
    one = world.story.start_driver()
    for _ in range(schedule.first):
        one.step()
    two = world.story.start_driver()
    for _ in range(schedule.second):
        two.step()
    if schedule.event == "timeout":
        world.expire()
    elif schedule.event == "crash":
        two.crash()
    for _ in range(schedule.again):
        one.step()
    world.finish()
