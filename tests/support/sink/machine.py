"""The sink's protocol as a Hypothesis state machine: drivers, tasks, timeouts, sleeps and crashes.

A driver that is not run for a while sleeps. When the random part is over, a driver that meets no
fault must commit two batches, sleeping drivers wake up, and the output is judged.
"""

from abc import abstractmethod

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.support.sink.story import Driver, Story

ANSWERS = st.sampled_from(("comes",) * 6 + ("lost", "late"))


class SinkMachine(RuleBasedStateMachine):
    """The rules; a subclass has the cluster."""

    story: Story

    @abstractmethod
    def expire(self) -> None:
        """Let the transaction timeout pass."""

    @abstractmethod
    def finish(self) -> None:
        """End the story, and judge."""

    def alive(self, which: int) -> Driver:
        alive = self.story.alive
        return alive[which % len(alive)]

    @rule()
    @precondition(lambda self: len(self.story.alive) < 3)
    def start_driver(self) -> None:
        self.story.start_driver()

    @rule()
    @precondition(lambda self: len(self.story.alive) < 3)
    def start_driver_of_an_empty_batch(self) -> None:
        self.story.start_driver(empty=True)

    @rule(which=st.integers(0, 2), count=st.integers(1, 14))
    @precondition(lambda self: self.story.alive)
    def run_driver(self, which: int, count: int) -> None:
        driver = self.alive(which)
        for _ in range(count):
            driver.step()

    @rule(which=st.integers(0, 2), answer=ANSWERS)
    @precondition(lambda self: self.story.alive)
    def step_driver(self, which: int, answer: str) -> None:
        driver = self.alive(which)
        driver.step(lose_answer=answer == "lost", repeat_late=answer == "late")

    @rule(which=st.integers(0, 2))
    @precondition(lambda self: self.story.alive)
    def crash_driver(self, which: int) -> None:
        self.alive(which).crash()

    @rule(index=st.integers(0, 9))
    @precondition(lambda self: self.story.late)
    def repeat_request(self, index: int) -> None:
        self.story.deliver_late(index)

    @rule()
    def start_process(self) -> None:
        self.story.start_process()

    @rule()
    def pass_timeout(self) -> None:
        self.story.history.append("the timeout passes")
        self.expire()

    def teardown(self) -> None:
        if self.story.drivers:
            self.finish()
