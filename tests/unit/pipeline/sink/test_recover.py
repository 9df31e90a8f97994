"""The recovery of a sink, on a model of the cluster."""

import pytest

from barnabas.cli.commands.pipeline import recovery_of
from barnabas.operations.sinks.decisions import decode
from barnabas.pipeline.sink.port import Fate
from barnabas.pipeline.sink.protocol import SinkError
from barnabas.pipeline.sink.recover import Recovery, recover
from tests.support.sink.model import ModelPort
from tests.support.sink.schedules import ModelStory
from tests.support.sink.story import Protocols, run_at_once


@pytest.fixture
def world() -> ModelStory:
    return ModelStory(Protocols)


def recovered(
    world: ModelStory, *, dry_run: bool = False, accept: bool = False, rewrite: bool = False
) -> Recovery:
    world.model.write_markers()
    port = ModelPort(world.model, "sink.driver")
    found = recover(port, "sink", dry_run=dry_run, accept=accept, rewrite=rewrite)
    result: Recovery = run_at_once(found)
    world.model.write_markers()
    return result


def fates(world: ModelStory) -> list[Fate]:
    return [each.fate for each in world.model.written]


def lose_second(world: ModelStory) -> None:
    """Decide a batch of two tasks, one of which another client aborts."""
    world.story.start_driver().until("decide").step()
    winner = decode(world.model.decisions[-1][1]).winners[1]
    world.model.end(winner.transactional_id, winner.client, committed=False)
    world.model.write_markers()
    for driver in world.story.alive:
        driver.crash()


def test_decided_batch_is_committed_and_the_rest_aborted(world: ModelStory) -> None:
    decided = world.story.start_driver().until("decide")
    decided.step()
    decided.crash()
    world.story.start_process()
    world.story.start_driver().until("list").crash()
    found = recovered(world)
    assert [len(found.to_commit), len(found.to_abort)] == [2, 2]
    assert fates(world) == [Fate.COMMITTED] * 2 + [Fate.ABORTED] * 2
    assert found.is_whole
    world.finish()


def test_batch_without_a_decision_is_aborted(world: ModelStory) -> None:
    driver = world.story.start_driver().until("decide")
    found = recovered(world)
    assert found.decision is None
    assert fates(world) == [Fate.ABORTED] * 2
    assert "has decided no batch" in found.lines[0]
    assert driver.go().error is not None
    world.finish()


def test_dry_run_changes_nothing(world: ModelStory) -> None:
    world.story.start_driver().until("decide").step()
    before = world.model.list_open(), len(world.model.decisions)
    found = recovered(world, dry_run=True)
    assert (world.model.list_open(), len(world.model.decisions)) == before
    assert "2 of its transactions would be committed" in found.lines


def test_loss_is_named_with_both_ways_out(world: ModelStory) -> None:
    lose_second(world)
    for found in (recovered(world, dry_run=True), recovered(world)):
        assert [each.transactional_id for each in found.lost] == ["sink.p0.1"]
        assert not found.is_whole
        assert "lost: sink.p0.1, 1 rows, the first at output-0 at offset 1" in found.lines
        assert "--accept" in found.lines[-1]
        assert "--rewrite" in found.lines[-1]
        assert recovery_of(found).is_whole is False


def test_driver_fails_after_a_loss_until_it_is_accepted(world: ModelStory) -> None:
    lose_second(world)
    failed = world.story.start_driver().go()
    assert "1 rows" in str(failed.error)
    assert "--accept" in str(failed.error)
    assert recovered(world, accept=True).written is not None
    driver = world.story.start_driver().go()
    assert driver.batches == 2
    world.model.write_markers()
    visible = [each.rows for each in world.model.written if each.fate is Fate.COMMITTED]
    assert visible.count((0, 0)) == 1
    assert (0, 1) not in visible


def test_rewritten_batch_is_written_again(world: ModelStory) -> None:
    lose_second(world)
    found = recovered(world, rewrite=True)
    assert "the job writes the batch again" in found.lines[-1]
    assert world.story.start_driver().go().batches == 2
    world.model.write_markers()
    visible = [each.rows for each in world.model.written if each.fate is Fate.COMMITTED]
    assert [visible.count((0, 0)), visible.count((0, 1))] == [2, 1]


def test_nothing_is_accepted_without_a_loss(world: ModelStory) -> None:
    world.story.start_driver().until("write the commit log").crash()
    assert recovered(world, accept=True).written is None
    world.finish()


def test_unknown_sink_is_not_created(world: ModelStory) -> None:
    with pytest.raises(SinkError, match="check its name"):
        recovered(world)
    assert world.model.ids == {}
