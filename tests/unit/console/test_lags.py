"""The samples of lags: one a minute, within bounds, also while a page is not shown."""

import asyncio

import pytest

from barnabas.console import lags
from barnabas.console.lags import Lags
from barnabas.operations.answers.groups import Coordinator, DescribedGroup


def described(group: str, lag: int) -> DescribedGroup:
    return DescribedGroup(
        group=group, state="Stable", type="classic", coordinator=Coordinator(0, "x:1"),
        assignor=None, epoch=None, assignment_epoch=None, lag=lag, to_read=lag - 1,
        held_back=None, exact=True, members=[], partitions=[],
    )  # fmt: skip


class Groups:
    """The groups of a cluster, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lag = 5
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self.lags = Lags(self.describe, (OSError, TimeoutError), lambda: self.now)

    async def describe(self, group: str) -> DescribedGroup:
        self.asked.append(group)
        if self.fails is not None:
            raise self.fails
        return described(group, self.lag)

    def shown(self, group: str = "g") -> list[int | None]:
        return [each.lag for each in self.lags.shown(described(group, self.lag))]

    def pass_minute(self) -> None:
        self.now += lags.PERIOD_S
        self.lag += 1
        asyncio.run(self.lags.sample())


def test_group_has_a_sample_a_minute_however_often_it_is_shown() -> None:
    groups = Groups()
    assert groups.shown() == [5]
    assert groups.shown() == [5]
    groups.now += lags.PERIOD_S - 1
    assert groups.shown() == [5]
    groups.now += 1
    groups.lag = 7
    assert groups.shown() == [5, 7]


def test_group_is_sampled_while_its_page_is_closed() -> None:
    groups = Groups()
    groups.shown()
    for _ in range(3):
        groups.pass_minute()
    assert groups.shown() == [5, 6, 7, 8]


def test_samples_are_those_of_an_hour() -> None:
    groups = Groups()
    groups.shown()
    for _ in range(100):
        groups.pass_minute()
        groups.shown()
    assert len(groups.shown()) == lags.KEPT
    groups.now += 1800
    assert 29 <= len(groups.shown()) <= 31


def test_group_is_forgotten_an_hour_after_it_was_shown() -> None:
    groups = Groups()
    groups.shown()
    for _ in range(59):
        groups.pass_minute()
    assert len(groups.asked) == 59
    groups.pass_minute()
    groups.pass_minute()
    assert len(groups.asked) == 59
    assert groups.shown() == [groups.lag]


def test_groups_are_bounded() -> None:
    groups = Groups()
    for number in range(lags.MOST_GROUPS + 50):
        groups.shown(f"g-{number}")
    groups.pass_minute()
    assert set(groups.asked) == {f"g-{number}" for number in range(50, lags.MOST_GROUPS + 50)}


@pytest.mark.parametrize("error", [OSError("gone"), TimeoutError("late")], ids=str)
def test_error_leaves_a_gap(error: Exception) -> None:
    groups = Groups()
    groups.shown()
    groups.fails = error
    groups.pass_minute()
    groups.fails = None
    groups.pass_minute()
    assert groups.shown() == [5, 7]
