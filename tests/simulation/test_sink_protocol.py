"""The sink's protocol on three complete brokers on virtual time: any order of requests, mutants.

Drivers stop between any two requests, while leaders and coordinators move, brokers are paused or
cut off, and timeouts pass. More by hand: BARNABAS_SINK_EXAMPLES=1000 pytest -n0 FILE
"""

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from barnabas.coordinator.transaction import ending, metadata, producers
from tests.simulation.sink.world import BrokerStory, SinkWorld
from tests.support.sink.machine import SinkMachine
from tests.support.sink.scripts import SCRIPTS, Stage
from tests.support.sink.story import Protocols

EXAMPLES = int(os.environ.get("BARNABAS_SINK_EXAMPLES", "8"))
MACHINE = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES <= 8,
)


@pytest.fixture(scope="module")
def world() -> Iterator[SinkWorld]:
    world = SinkWorld()
    world.start()
    yield world
    world.close()


@pytest.fixture(autouse=True)
def _few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a producer id have ten epochs, so that they end in the middle of batches."""
    for module in (metadata, producers, ending):
        monkeypatch.setattr(module, "LAST_CLIENT_EPOCH", 9)


class BrokerMachine(SinkMachine):
    """The state machine on brokers, with their faults."""

    def __init__(self) -> None:
        super().__init__()
        self.world = SinkWorld()
        self.world.start()
        self.stage = BrokerStory(self.world)
        self.story = self.stage.story

    def expire(self) -> None:
        self.stage.expire()

    @rule(partition=st.integers(0, 1))
    def move_coordinators(self, partition: int) -> None:
        self._note(f"the coordinators of __transaction_state-{partition} move")
        self.world.move_leader("__transaction_state", partition)

    @rule()
    def move_decisions(self) -> None:
        self._note("the leader of the decisions moves")
        self.world.move_leader(f"{self.stage.name}.decisions", 0)

    @rule(partition=st.integers(0, 2))
    def move_output(self, partition: int) -> None:
        self._note(f"the leader of partition {partition} moves")
        self.world.move_leader(self.stage.output, partition)

    @rule(index=st.integers(0, 2))
    @precondition(lambda self: self.world.is_healthy)
    def pause_broker(self, index: int) -> None:
        self._note(f"broker {index + 1} sleeps")
        self.world.pause(index)

    @rule(index=st.integers(0, 2))
    @precondition(lambda self: self.world.is_healthy)
    def kill_broker(self, index: int) -> None:
        self._note(f"broker {index + 1} is killed")
        self.world.kill(index)

    @rule(index=st.integers(0, 2))
    @precondition(lambda self: self.world.is_healthy)
    def cut_off_broker(self, index: int) -> None:
        self._note(f"broker {index + 1} is cut off")
        self.world.cut_off(index)

    @rule()
    @precondition(lambda self: not self.world.is_healthy)
    def heal(self) -> None:
        self._note("all brokers are well")
        self.world.heal()

    def _note(self, fault: str) -> None:
        self.story.history.append(fault)

    def finish(self) -> None:
        self.stage.finish()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.world.close()


@pytest.mark.timeout(36_000)
def test_state_machine_on_brokers_ends_with_every_batch_visible_once() -> None:
    run_state_machine_as_test(BrokerMachine, settings=MACHINE)


@pytest.mark.parametrize("script", sorted(set(SCRIPTS.values()), key=repr))
def test_protocol_survives_the_schedules_that_mutants_do_not(
    world: SinkWorld, script: Callable[[Stage], None]
) -> None:
    play(script, BrokerStory(world))


@pytest.mark.parametrize("mutant", SCRIPTS, ids=lambda each: each.__name__)
def test_mutant_of_the_protocol_is_found(world: SinkWorld, mutant: type[Protocols]) -> None:
    stage = BrokerStory(world, mutant)
    try:
        with pytest.raises(AssertionError):
            play(SCRIPTS[mutant], stage)
    finally:
        world.heal()


def play(script: Callable[[Stage], None], stage: BrokerStory) -> None:
    script(stage)
    stage.finish()
