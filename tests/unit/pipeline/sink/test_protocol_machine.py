"""The protocol of the sink on a model of the cluster: any order of requests, and mutants.

Thousands by hand: BARNABAS_SINK_STORIES=100000 pytest -n0 tests/unit/pipeline/sink
"""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from tests.support.sink.machine import SinkMachine
from tests.support.sink.schedules import ModelStory, all_schedules, random_story, run_schedule
from tests.support.sink.scripts import SCRIPTS, Stage
from tests.support.sink.story import Protocols

STORIES = int(os.environ.get("BARNABAS_SINK_STORIES", "400"))
MACHINE = settings(
    max_examples=max(60, STORIES // 10),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class ModelMachine(SinkMachine):
    """The state machine on the model; drivers may read from deposed brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ModelStory(Protocols)
        self.story = self.world.story

    def expire(self) -> None:
        self.world.expire()

    @rule(which=st.integers(0, 2))
    @precondition(lambda self: self.story.alive)
    def depose(self, which: int) -> None:
        self.world.depose(self.alive(which))

    def finish(self) -> None:
        self.world.finish()


def test_state_machine_ends_with_every_batch_visible_once() -> None:
    run_state_machine_as_test(ModelMachine, settings=MACHINE)


@pytest.mark.timeout(3600)
def test_random_stories_end_with_every_batch_visible_once() -> None:
    for seed in range(STORIES):
        try:
            random_story(seed, Protocols)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.timeout(3600)
def test_bounded_delivery_holds_while_no_timeout_passes() -> None:
    class Bounded(Protocols):
        bounded = True

    for seed in range(STORIES // 2):
        try:
            random_story(seed, Bounded, without=("timeout", "recover"))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.timeout(3600)
def test_every_schedule_of_two_drivers_ends_with_every_batch_visible_once() -> None:
    more = min(STORIES // 400, 10)
    for schedule in all_schedules(first=12, second=18 + more, again=1 + more):
        try:
            run_schedule(schedule, Protocols)
        except AssertionError as error:
            raise AssertionError(f"{schedule}: {error}") from error


@pytest.mark.parametrize("script", sorted(set(SCRIPTS.values()), key=repr))
def test_protocol_survives_the_schedules_that_mutants_do_not(
    script: Callable[[Stage], None],
) -> None:
    world = ModelStory(Protocols)
    script(world)
    world.finish()


@pytest.mark.parametrize("mutant", SCRIPTS, ids=lambda each: each.__name__)
def test_mutant_of_the_protocol_is_found(mutant: type[Protocols]) -> None:
    world = ModelStory(mutant)
    with pytest.raises(AssertionError):
        _play(SCRIPTS[mutant], world)


def _play(script: Callable[[Stage], None], world: ModelStory) -> None:
    script(world)
    world.finish()


RARE = ("ListBeforeCleaning", "CleanById", "LeaveOutById", "FencedMeansAborted", "TrustsFirstPin")
"""Mutants that random stories meet too rarely: the scripts find them."""


@pytest.mark.parametrize("mutant", [each for each in SCRIPTS if each.__name__ not in RARE])
def test_random_stories_find_mutants(mutant: type[Protocols]) -> None:
    with pytest.raises(AssertionError):
        _random_stories(mutant)


def _random_stories(protocols: type[Protocols]) -> None:
    for seed in range(300):
        random_story(seed, protocols)


def test_steps_of_a_commit_are_in_order() -> None:
    world = ModelStory(Protocols)
    world.story.start_driver().until("write the commit log")
    requests = [line.removeprefix("driver 0: ").split()[0] for line in world.story.history]
    steps = ["list", "fence", "pin", "pin", "write", "look", "decide", "commit", "commit"]
    assert requests[-len(steps) :] == steps
