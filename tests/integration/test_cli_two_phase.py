"""`barnabas transactions` and transactions of two-phase commit (KIP-939)."""

import asyncio
import re
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.two_phase import InitialisedProducer, init_producer_id
from barnabas.testing import Broker
from tests.support.command_line import DEADLINE, Cli
from tests.support.newer_producer import NewerProducer
from tests.support.transactions_by_hand import committed_values, refused
from tests.support.waiting import until


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cli("topics", "create", name, "-p", "1")
    return name


class Kept(NamedTuple):
    """A kept transaction with one record."""

    id: str
    ongoing: str
    client: str


def keep(servers: str, id: str, *, two_phase: bool = True) -> InitialisedProducer:
    async def kept() -> InitialisedProducer:
        async with Cluster(servers) as cluster:
            return await init_producer_id(
                cluster, id, 60_000, keep_prepared=True, two_phase=two_phase
            )

    return asyncio.run(kept())


def opened(servers: str, topic: str, id: str) -> NewerProducer:
    producer = NewerProducer(servers, id).init()
    producer.send(topic, 0, b"open")
    return producer


@pytest.fixture
def kept(servers: str, topic: str) -> Kept:
    id = f"{topic}.worker.3"
    opened(servers, topic, id)
    client, ongoing = keep(servers, id)
    assert ongoing is not None
    return Kept(id, "{}:{}".format(*ongoing), "{}:{}".format(*client))


def test_two_phase_transactions_are_listed_with_their_clients(
    cli: Cli, servers: str, topic: str, kept: Kept
) -> None:
    ordinary = opened(servers, topic, f"{topic}.ordinary")
    unpinned = f"{topic}.unpinned"
    opened(servers, topic, unpinned)
    keep(servers, unpinned, two_phase=False)
    rows = {
        row["transactional_id"]: row
        for row in cli.json("transactions", "list", "--two-phase")
        if row["transactional_id"].startswith(topic)
    }
    assert rows.keys() == {kept.id, unpinned}
    row = rows[kept.id]
    assert "{producer_id}:{epoch}".format(**row) == kept.ongoing
    assert "{client_producer_id}:{client_epoch}".format(**row) == kept.client
    assert (row["coordinator"], row["kept"]) == (0, True)
    assert 0 <= row["age_ms"] < DEADLINE * 1000
    filtered = cli.json("transactions", "list", "--two-phase", "--pattern", kept.id)
    assert [each["transactional_id"] for each in filtered] == [kept.id]
    assert cli.json("transactions", "list", "--two-phase", "-s", "Empty") == []
    described = cli.json("transactions", "describe", kept.id)
    assert described["kept_by"] == kept.client
    described = cli.json("transactions", "describe", f"{topic}.ordinary")
    assert described["kept_by"] is None
    ordinary.end(committed=False)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_operator_ends_a_kept_transaction(
    cli: Cli, servers: str, topic: str, kept: Kept, outcome: str
) -> None:
    done = cli.json("transactions", "end", kept.id, f"--{outcome}")
    assert (done["transactional_id"], done["committed"]) == (kept.id, outcome == "commit")
    assert "{producer_id}:{epoch}".format(**done) == kept.ongoing
    until(lambda: cli.json("transactions", "why", topic) == [])
    assert committed_values(servers, topic) == ([b"open"] if outcome == "commit" else [])
    said = refused(cli, "end", kept.id, "--commit")
    assert "has no open transaction of two-phase commit: it is Complete" in said


def test_end_leaves_ordinary_transactions_alone_and_needs_an_outcome(
    cli: Cli, servers: str, topic: str
) -> None:
    producer = opened(servers, topic, topic)
    assert "it is Ongoing, see" in refused(cli, "end", topic, "--commit")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in refused(cli, "end", "absent", "--abort")
    for flags in ([], ["--commit", "--abort"]):
        code, _, errors = cli.run("transactions", "end", topic, *flags)
        assert code == 2
        assert b"Give either --commit or --abort." in errors
    producer.end(committed=False)


def test_why_names_the_keeper_and_the_age_of_a_kept_transaction(
    cli: Cli, topic: str, kept: Kept
) -> None:
    (found,) = cli.json("transactions", "why", topic)
    keeper = f"{kept.id} with producer {kept.client} at 127.0.0.1"
    assert found["keeper"] == keeper
    assert re.fullmatch(
        rf"the transaction is kept for two-phase commit by {keeper}, and open for [0-9.]+ s",
        found["because"],
    )
    assert found["advice"] == (
        f"barnabas pipeline recover {topic}, or if no sink has it:"
        f" barnabas transactions end {kept.id} --commit|--abort"
    )
    assert (found["state"], found["time_left_ms"]) == ("Ongoing", None)
    assert 0 <= found["age_ms"] < DEADLINE * 1000
    cli("transactions", "end", kept.id, "--abort")


def test_fence_and_abort_refuse_a_kept_transaction_unless_forced(
    cli: Cli, servers: str, topic: str, kept: Kept
) -> None:
    abort = ("abort", f"{topic}:0", "--start-offset", "0")
    for command in (("fence", kept.id), abort):
        said = refused(cli, *command)
        assert said.startswith("barnabas: not aborted: the transaction is kept for two-phase")
        assert f"by {kept.id} with producer {kept.client} at 127.0.0.1, and open for " in said
        assert f"try barnabas pipeline recover {topic}, or" in said
        assert said.endswith("--force aborts it nevertheless")
    assert cli.json("transactions", "why", topic) != []
    cli("transactions", "fence", kept.id, "--force")
    until(lambda: cli.json("transactions", "why", topic) == [])
    assert committed_values(servers, topic) == []
    assert cli.json("transactions", "fence", kept.id)["transactional_id"] == kept.id


def test_forced_abort_ends_a_kept_transaction_in_its_partition(
    cli: Cli, servers: str, topic: str, kept: Kept
) -> None:
    done = cli.json("transactions", "abort", f"{topic}:0", "--start-offset", "0", "--force")
    assert done["aborted"] is True
    assert committed_values(servers, topic) == []
    cli("transactions", "end", kept.id, "--abort")


@pytest.mark.parametrize(
    ("id", "sink"),
    [("a.b.host.7", "a.b"), ("orders.driver", "orders"), ("x.y", "SINK"), ("flat", "SINK")],
)
def test_advice_names_the_sink_of_an_id(
    cli: Cli, servers: str, topic: str, id: str, sink: str
) -> None:
    opened(servers, topic, id)
    keep(servers, id)
    assert f"recover {sink}, or" in refused(cli, "fence", id)
    cli("transactions", "end", id, "--abort")
