"""A schedule for each mutant of the sink's protocol, which the mutant does not survive."""

from collections.abc import Callable
from typing import Protocol

from tests.support.sink import mutants
from tests.support.sink.story import Driver, Protocols, Story


class Stage(Protocol):
    """A story on some cluster."""

    story: Story

    def expire(self) -> None:
        """Let the timeout of every transaction pass."""

    def depose(self, driver: Driver) -> None:
        """Let a driver read from brokers that learn no more."""

    def settle(self) -> None:
        """Let all markers be written."""

    def open_ids(self) -> list[str]:
        """Return the transactional ids of the sink with an open transaction."""


def crash_before_commit(stage: Stage) -> None:
    """A driver dies when its tasks have answered."""
    stage.story.start_driver().until("list").crash()


def sleep_before_listing(stage: Stage) -> None:
    """A driver sleeps after its commit, until another has decided the next batch."""
    sleeper = stage.story.start_driver().until("decide")
    sleeper.step()
    sleeper.until("list", "abort", "write the commit log")
    _decide_next(stage, stage.story.start_driver())
    sleeper.go()


def sleep_before_deciding(stage: Stage) -> None:
    """A driver sleeps with its decision written."""
    stage.story.start_driver().until("decide")


def late_abort(stage: Stage) -> None:
    """A driver sleeps in an abort, when it has read and is about to clean."""
    failing = stage.story.start_driver().until("list")
    stage.expire()
    other = stage.story.start_driver().until("fence")
    failing.step()
    failing.until("list").until("drop")
    failing.step()
    other.until("decide").step()
    failing.go()
    other.go()


def timeout_before_decision(stage: Stage) -> None:
    """The timeout passes when the winners are pinned."""
    driver = stage.story.start_driver().until("write the decision")
    stage.expire()
    driver.go()


def crash_before_commit_log(stage: Stage) -> None:
    """A driver dies when its batch is visible; the batch comes again."""
    stage.story.start_driver().until("write the commit log").crash()


def abort_after_decision(stage: Stage) -> None:
    """A driver fails when another has decided, and has not carried it out."""
    stage.story.start_driver().until("decide").step()
    failing = stage.story.start_driver().until("list")
    stage.expire()
    failing.go()


def deposed_leader(stage: Stage) -> None:
    """A driver reads from a deposed leader, which does not have the last decision."""
    driver = stage.story.start_driver()
    stage.depose(driver)
    stage.story.start_process()
    stage.story.start_driver().until("write the commit log").crash()
    driver.go()


def reuse_before_cleaning(stage: Stage) -> None:
    """A driver sleeps before it cleans, until an id that it has listed has another transaction."""
    other = stage.story.start_driver().until("list")
    sleeper = stage.story.start_driver().until("decide")
    sleeper.step()
    sleeper.until("abort", "describe")
    _decide_next(stage, other)
    sleeper.go()
    other.go()


def leftover_of_winner(stage: Stage) -> None:
    """An id of the last decision has been used again, by a driver that died."""
    first = stage.story.start_driver().until("write the commit log")
    first.step()
    stage.settle()
    first.until("list").crash()
    stage.story.start_process()
    stage.story.start_driver().until("write the commit log").crash()
    assert not stage.open_ids(), "what was listed is open"


def reuse_before_carrying_out(stage: Stage) -> None:
    """Another driver's tasks use the same process, when a batch is decided."""
    decided = stage.story.start_driver().until("decide")
    decided.step()
    stage.story.start_driver().until("list").crash()
    decided.go()


def fenced_after_lost_answer(stage: Stage) -> None:
    """The answer to the decision is lost, and another driver fences before it is asked again."""
    decided = stage.story.start_driver().until("decide")
    decided.step(lose_answer=True)
    other = stage.story.start_driver().until("fence")
    other.step()
    decided.go()


def late_pin(stage: Stage) -> None:
    """A repeated request to pin arrives after the decision."""
    driver = stage.story.start_driver().until("pin")
    driver.step(repeat_late=True)
    driver.until("decide").step()
    stage.story.deliver_late(0)
    driver.go()


def _decide_next(stage: Stage, driver: Driver) -> None:
    """Let a driver accept the decision that stands, and decide the next batch."""
    driver.until("write the commit log").step()
    stage.settle()
    driver.until("decide").step()


SCRIPTS: dict[type[Protocols], Callable[[Stage], None]] = {
    mutants.WithoutList: crash_before_commit,
    mutants.ListBeforeCleaning: sleep_before_listing,
    mutants.WithoutFence: sleep_before_deciding,
    mutants.FenceAfterPins: late_abort,
    mutants.WithoutPins: timeout_before_decision,
    mutants.PinsAfterDecision: timeout_before_decision,
    mutants.WithoutLookBack: crash_before_commit_log,
    mutants.AbortWithoutLookBack: abort_after_decision,
    mutants.LookBackBeforeWriting: deposed_leader,
    mutants.CleanById: reuse_before_cleaning,
    mutants.LeaveOutById: leftover_of_winner,
    mutants.ReuseUnchecked: reuse_before_carrying_out,
    mutants.FencedMeansAborted: fenced_after_lost_answer,
    mutants.TrustsFirstPin: late_pin,
}
