"""kill -9 under load, repeatedly: acknowledged records are there once and in order.

`BARNABAS_KILLS=50 pytest tests/integration/test_kill_dash_nine.py` is the long run.
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.integration.adversary.loads import Committer, Sender, read_all
from tests.support.brokers.process import BrokerProcess

KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))


def wait_for_more(senders: list[Sender], committer: Committer) -> None:
    """Return when the running broker has acknowledged something to each client."""
    before = [sender.promised for sender in senders]
    committer.wait_for_more(committer.commits)
    for sender, promised in zip(senders, before, strict=True):
        sender.wait_for_more(promised)


@pytest.mark.timeout(120 + 10 * KILLS)
@pytest.mark.parametrize(
    ("program", "keys"),
    [
        pytest.param("", {}, id="process killed"),
        pytest.param(
            "tests.support.brokers.lossy",
            {"log_flush_interval_messages": "1"},
            id="power lost",
        ),
    ],
)
def test_acknowledged_records_survive_kills_and_are_there_once(
    tmp_path: Path, program: str, keys: dict[str, str]
) -> None:
    chance = random.Random(KILLS)
    # Small segments: rolls, indexes and snapshots are interrupted too.
    keys |= {"log_segment_bytes": "1048576", "log_index_interval_bytes": "512"}
    with BrokerProcess(tmp_path / "broker", program=program, **keys) as broker:
        servers = broker.bootstrap_servers
        idempotent = Sender(servers, "exactly", idempotent=True)
        senders = [
            idempotent,
            Sender(servers, "plain-all", idempotent=False),
            Sender(servers, "plain-one", idempotent=False, acks="1"),
        ]
        committer = Committer(servers, "exactly", "readers")
        for _ in range(KILLS):
            wait_for_more(senders, committer)
            time.sleep(chance.uniform(0, 0.4))
            promised = dict(committer.committed)
            broker.kill()
            if chance.random() < 0.3:
                # Recovery itself is interrupted.
                broker.launch()
                time.sleep(chance.uniform(0.1, 0.45))
                broker.kill()
            broker.start()
            committer.check(promised, "exactly")
        for sender in senders:
            sender.finish()
        committer.finish()
        for sender in senders:
            sender.check(read_all(servers, sender.topic))
        print(
            f"{KILLS} kills, {broker.starts} starts,",
            f"{[sender.promised for sender in senders]} records, {committer.commits} commits",
        )
