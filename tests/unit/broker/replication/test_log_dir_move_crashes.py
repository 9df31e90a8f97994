"""Crashes of the process or the machine at every disk call of a move: one whole replica stays."""

import asyncio
from collections import Counter
from itertools import count

import pytest

from barnabas.broker.replication import log_dir_moves
from barnabas.protocol.errors import ErrorCode
from tests.unit.broker.replication.two_dir_broker import (
    DIRECTORIES,
    CrashingFiles,
    PowerCut,
    TwoDirBroker,
    expected,
    until,
    values,
)

BATCHES = 24


@pytest.fixture(autouse=True)
def _many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 800)
    monkeypatch.setattr(log_dir_moves, "TAIL_BYTES", 200)
    monkeypatch.setattr(log_dir_moves, "PAUSE_S", 0.001)


async def move_and_cut(files: CrashingFiles, nth: int) -> tuple[int, int, bool]:
    """Move a replica and crash at the `nth` disk call.

    Returns the acknowledged end, the written end, and whether the move was over before the crash.
    """
    moving = TwoDirBroker(files)
    await moving.lead()
    moving.put(BATCHES)
    partition, old = moving.partition, moving.log
    await until(lambda: partition.high_watermark == BATCHES)
    files.cut_at = files.calls + nth
    over = had_twins = False
    last = old
    try:
        await moving.move()
        for turn in count():
            if over := not len(moving.manager.moves):
                break
            twins = len(of_the_partition(files, "t-0")) == 2
            if turn % 7 == 0 or twins != had_twins or partition.log is not last:
                # Above all while two directories have that name: only one gets these records.
                moving.put(3)
            had_twins, last = twins, partition.log
            await asyncio.sleep(0)
            if files.calls >= files.cut_at:
                break
    except PowerCut:
        pass
    acknowledged = partition.high_watermark
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
    return acknowledged, max(old.log_end_offset, partition.log.log_end_offset), over


def restart(files: CrashingFiles) -> TwoDirBroker:
    files.cut_at = 0
    return TwoDirBroker(files)


def of_the_partition(files: CrashingFiles, ending: str) -> list[str]:
    return [
        f"{path}/{name}"
        for path in DIRECTORIES
        for name in files.listdir(path)
        if name.startswith("t-0") and name.endswith(ending)
    ]


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_crash_at_any_disk_call_leaves_one_whole_replica(power: bool) -> None:
    left: Counter[str] = Counter()
    for nth in count(1):
        files = CrashingFiles()
        acknowledged, end, over = asyncio.run(move_and_cut(files, nth))
        if over:
            break
        left[f"{len(of_the_partition(files, 't-0'))} of that name"] += 1
        if power:
            files.crash(nth)
        else:
            files.kill()
        asyncio.run(go_on(files, acknowledged if power else end - 1, end))
    assert left["1 of that name"] > 50
    assert left["2 of that name"] > 5, "no crash came between settle and retire"


async def go_on(files: CrashingFiles, acknowledged: int, end: int) -> None:
    again = restart(files)
    assert len(of_the_partition(files, "t-0")) == 1
    log = again.logs.get("t", 0)
    assert log is not None
    assert acknowledged <= log.log_end_offset <= end
    assert values(log) == expected(0, log.log_end_offset)
    assert await again.lead(epoch=1) == ErrorCode.NONE
    await again.moved()
    assert again.logs.futures == {}
    again.put(3)
    assert values(again.log) == expected(0, again.log.log_end_offset)
    await again.move()
    await again.moved()
    assert values(again.log) == expected(0, again.log.log_end_offset)
    entry = again.log.producers.entry(7)
    assert entry is not None
    assert entry.last_sequence == again.log.log_end_offset - 1
    again.logs.remove(again.logs.due_removals())
