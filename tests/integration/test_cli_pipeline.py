"""`barnabas pipeline` on a broker, without Spark: errors, status and verdicts."""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.operations.sinks.decisions import DecidedWinner, SinkDecision, encode, key_of
from barnabas.pipeline.monitor.progress import DecisionCounts
from barnabas.pipeline.monitor.sink_state import SinkWatch
from barnabas.pipeline.sink.port import Identity, Place
from barnabas.testing import Broker
from tests.support.answers import holds
from tests.support.command_line import Cli
from tests.support.waiting import until


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


def refused(cli: Cli, *arguments: str) -> str:
    """Return the one line on standard error of a command that fails."""
    code, out, errors = cli.run("pipeline", *arguments)
    assert (code, out) == (1, b"")
    (line,) = errors.decode().splitlines()
    return line


class Job:
    """A job file with topics of its own, and output as the sink writes it."""

    def __init__(self, cli: Cli, directory: Path, *, more: str = "") -> None:
        self.name = f"j{uuid.uuid4().hex[:8]}"
        self.servers = cli.servers
        self.path = directory / "job.yaml"
        self.checkpoint = directory / "points"
        self.path.write_text(
            f"name: {self.name}\n"
            f"source: {{topic: {self.name}-in, codec: string,"
            " options: {startingOffsets: earliest}}\n"
            f"sink: {{topic: {self.name}-out, codec: string}}\n"
            f"checkpoint: points\nlineage: true\n{more}"
        )
        for topic in ("in", "out"):
            cli("topics", "create", f"{self.name}-{topic}", "-p", "1")

    def read_in(self, count: int) -> None:
        """Write input, and a checkpoint that has read it."""

        async def write() -> None:
            async with Cluster(self.servers) as cluster, Producer(cluster) as producer:
                for _ in range(count):
                    await producer.send(f"{self.name}-in", b"value", partition=0)

        asyncio.run(write())
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id": "query-1"}')
        offsets = json.dumps({f"{self.name}-in": {"0": count}})
        (self.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{offsets}")
        (self.checkpoint / "commits" / "0").write_text("v1\n{}")

    def drop(self) -> None:
        """Write a decision in a transaction that is aborted."""

        async def write() -> None:
            driver = f"{self.name}.driver"
            async with Cluster(self.servers) as cluster:
                async with TransactionalProducer(cluster, driver) as producer:
                    await producer.init_transactions()
                    await producer.begin_transaction()
                    decision = encode(SinkDecision("query-1", 9, None, ()))
                    topic = f"{self.name}.decisions"
                    await producer.send(topic, decision, key=key_of(self.name))
                    await producer.flush()
                    await producer.abort_transaction()

        asyncio.run(write())

    def write_out(self, batch: int, inputs: Sequence[int], *, decided: int | None = None) -> None:
        """Write a transaction whose rows come from offsets of the input, and its decision.

        The decision is for `decided` rows, as many as there are if that is None.
        """
        asyncio.run(self._write_out(batch, inputs, len(inputs) if decided is None else decided))

    async def _write_out(self, batch: int, inputs: Sequence[int], decided: int) -> None:
        async with Cluster(self.servers) as cluster:
            task = f"{self.name}.a.0"
            async with TransactionalProducer(cluster, task) as producer:
                await producer.init_transactions()
                identity = Identity(*producer.identity)
                async with producer.transaction():
                    for offset in inputs:
                        place = f"{self.name}-in/0@{offset}".encode()
                        headers = (("barnabas.lineage", place),)
                        await producer.send(f"{self.name}-out", b"value", headers=headers)
            winner = DecidedWinner(
                task, identity, identity, decided, Place(f"{self.name}-out", 0, 0)
            )
            decision = SinkDecision("query-1", batch, None, (winner,))
            async with TransactionalProducer(cluster, f"{self.name}.driver") as driver:
                await driver.init_transactions()
                async with driver.transaction():
                    await driver.send(
                        f"{self.name}.decisions", encode(decision), key=key_of(self.name)
                    )


@pytest.fixture
def job(cli: Cli, tmp_path: Path) -> Job:
    return Job(cli, tmp_path)


def test_status_of_a_job_that_never_ran(cli: Cli, job: Job) -> None:
    assert cli("pipeline", "status", str(job.path)).decode().splitlines() == [
        f"job:          {job.name}",
        f"sink:         {job.name}",
        "checkpoint:   not readable here, or the job has never run",
        "decision:     none",
        "open:         0 transactions, 0 kept",
    ]
    status = holds(cli.servers, "pipeline", "status", str(job.path))
    assert (status["batch"], status["lag"]) == (None, None)
    nothing = {"decision": None, "counts": None, "open": [], "problem": None}
    assert status["cluster"] == nothing
    assert status["progress"] is None


def test_status_has_checkpoint_lag_decision_and_kept_transactions(cli: Cli, job: Job) -> None:
    job.read_in(3)
    job.write_out(0, [0, 1, 2])
    cli("produce", f"{job.name}-in", stdin=b"one\ntwo\n")

    async def look() -> Any:
        async with Cluster(cli.servers) as cluster:
            task = TransactionalProducer(cluster, f"{job.name}.b.0", two_phase=True)
            async with task as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send(f"{job.name}-out", b"open")
                await producer.prepare_transaction()
                command = (cli.servers, "pipeline", "status", str(job.path))
                shown = await asyncio.to_thread(holds, *command)
                await producer.abort_transaction()
        return shown

    status = asyncio.run(look())
    assert (status["query"], status["batch"], status["begun"]) == ("query-1", 0, 0)
    assert status["lag"] == 2
    sink = status["cluster"]
    assert (sink["decision"]["batch"], sink["decision"]["rows"]) == (0, 3)
    [kept] = sink["open"]
    assert (kept["transactional_id"], kept["is_kept"]) == (f"{job.name}.b.0", False)
    assert 0 <= kept["age_seconds"] < 60


def test_the_watch_of_a_sink_follows_its_decisions_and_counts_them(cli: Cli, job: Job) -> None:
    with SinkWatch(cli.servers, job.name) as watch:
        until(lambda: watch.read().open == ())
        assert watch.read().decision is None
        for batch in (0, 1):
            job.write_out(batch, [batch])
            until(lambda batch=batch: (last := watch.read().decision) and last.batch == batch)
        assert watch.read().counts == DecisionCounts(committed=2, transactions=2, dropped=0)
        job.drop()
        until(lambda: (counts := watch.read().counts) and counts.dropped == 1)
    assert watch.read().problem is None
    # Those before its start are not counted.
    with SinkWatch(cli.servers, job.name) as watch:
        until(lambda: watch.read().decision)
        assert watch.read().counts == DecisionCounts(0, 0, 0)
        job.write_out(2, [2])
        until(lambda: watch.read().counts == DecisionCounts(1, 1, 0))


def test_the_watch_of_a_sink_tells_why_it_knows_nothing() -> None:
    with SinkWatch("127.0.0.1:1", "sink") as watch:
        assert "127.0.0.1:1" in until(lambda: watch.read().problem or "")


def test_verify_finds_no_fault_in_an_output_of_each_input_record_once(cli: Cli, job: Job) -> None:
    job.read_in(5)
    job.write_out(0, [0, 1, 2])
    job.write_out(1, [3, 4])
    verdict = holds(cli.servers, "pipeline", "verify", str(job.path))
    assert (verdict["rows"], verdict["inputs"], verdict["decisions"]) == (5, 5, 2)
    assert verdict["problems"] == []
    assert b"no fault found" in cli("pipeline", "verify", str(job.path))


def test_verify_finds_gaps_repetitions_and_rows_that_differ_from_decisions(
    cli: Cli, job: Job
) -> None:
    job.read_in(6)
    job.write_out(0, [0, 1, 1])
    job.write_out(1, [4], decided=2)
    code, out, errors = cli.run("pipeline", "verify", str(job.path))
    assert (code, errors) == (3, b"")
    repeated, missing, transaction = out.decode().splitlines()[-3:]
    place = f"{job.name}-in/0"
    assert repeated == f"1 input records came more than once: {place}@1"
    assert missing == f"3 input records came never, 0 may be missing: {place}@2..3, {place}@5"
    assert transaction.endswith(f"({job.name}.a.0, batch 1) has 1 rows, 2 were decided")
    verdict = holds(cli.servers, "pipeline", "verify", str(job.path), "--missing", "3", code=3)
    offsets = {
        name: [(each["first"], each["last"], each["records"]) for each in verdict[name]]
        for name in ("repeated", "missing", "foreign")
    }
    assert offsets == {"repeated": [(1, 1, 1)], "missing": [(2, 3, 2), (5, 5, 1)], "foreign": []}
    (mismatch,) = verdict["mismatches"]
    assert (mismatch["batch"], mismatch["decided"], mismatch["found"]) == (1, 2, 1)
    assert (verdict["missing_records"], verdict["allowed_missing"]) == (3, 3)


def test_verify_of_no_output_has_an_exit_code_of_its_own(cli: Cli, job: Job) -> None:
    code, out, _ = cli.run("pipeline", "verify", str(job.path))
    assert (code, out.splitlines()[-1]) == (4, b"there is no output to verify")


def test_a_wrong_job_file_is_told_in_one_line(cli: Cli, job: Job) -> None:
    job.path.write_text(job.path.read_text().replace("codec", "kodec", 1))
    message = refused(cli, "check", str(job.path))
    assert message.startswith(f"barnabas: {job.path}:2:")
    assert "unknown key 'kodec'; did you mean 'codec'?" in message


def test_package_is_refused_before_it_is_written(cli: Cli, job: Job, tmp_path: Path) -> None:
    text = job.path.read_text()
    to = tmp_path / "orders.zip"
    message = refused(cli, "package", str(job.path), "-o", str(to))
    assert message.startswith(f"barnabas: {job.path}:4:1: checkpoint: on a cluster 'points' is")
    job.path.write_text(text.replace("points", "/points"))
    assert refused(cli, "package", str(job.path), "-o", str(to)) == (
        f"barnabas: --output {to}: spark-submit runs only files whose names end in .py"
    )
    job.path.write_text(text.replace("startingOffsets", "startingOfsets"))
    message = refused(cli, "package", str(job.path))
    assert message.startswith(f"barnabas: {job.path}:2:")
    assert "startingofsets" in message.lower()
    assert not to.exists()


def test_topics_that_are_missing_are_told_before_spark_starts(cli: Cli, job: Job) -> None:
    text = job.path.read_text()
    job.path.write_text(text.replace("-in,", "-inn,"))
    message = refused(cli, "run", str(job.path))
    assert message == (
        f"barnabas: {job.path}:2:10: topic {job.name}-inn does not exist;"
        f" did you mean '{job.name}-in'? Or: barnabas topics create {job.name}-inn"
    )
    job.path.write_text(text.replace(f"{job.name}-out", "z" * 25))
    message = refused(cli, "run", str(job.path))
    assert message.endswith("; barnabas topics create " + "z" * 25)


def test_brokers_that_cannot_be_reached_are_told_before_spark_starts(cli: Cli, job: Job) -> None:
    message = refused(cli, "run", str(job.path), "-b", "127.0.0.1:1")
    assert "127.0.0.1:1" in message


def test_a_missing_job_file_is_told_in_one_line(cli: Cli) -> None:
    message = refused(cli, "check", "/nowhere/job.yaml")
    assert message == "barnabas: /nowhere/job.yaml: No such file or directory"


def test_the_missing_extra_is_named(cli: Cli, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    message = refused(cli, "run", str(job.path))
    assert message == "barnabas: the pipeline needs pyspark, yaml: pip install 'barnabas[spark]'"


def test_help_imports_none_of_the_extra() -> None:
    code = (
        "import sys; sys.argv = ['barnabas', 'pipeline', '--help']\n"
        "from barnabas.cli.main import main\n"
        "try: main()\n"
        "finally: print({'pyspark', 'pydantic', 'yaml', 'pyarrow', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.endswith("set()\n")
