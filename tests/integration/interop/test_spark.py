"""Spark Structured Streaming with its stock connector reads committed records of three brokers on
ZooKeeper, writes the results to another topic, and continues from its checkpoint after the query
was stopped and after its driver was killed, while kill -9 takes brokers.

    tests/run-spark stock
"""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.interop.cluster import cluster_on
from tests.support.brokers.cluster import ProcessCluster
from tests.support.brokers.process import ROOT
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.spark

INPUT, OUTPUT = "spark-input", "spark-output"
PARTITIONS = 3
PER_TRANSACTION = 20
IN_TIME_S = 240.0
_QUICK = {"log_level": 0, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Source(threading.Thread):
    """Commits transactions of numbered records, every third aborted, until it is stopped."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": "source", **_QUICK}
        )
        self._enough = threading.Event()
        self.committed: list[str] = []
        self.aborted: list[str] = []

    def run(self) -> None:
        self._producer.init_transactions(IN_TIME_S)
        number = 0
        while not self._enough.wait(0.05):
            number += 1
            values = [f"{number}.{index}" for index in range(PER_TRANSACTION)]
            self._producer.begin_transaction()
            for index, value in enumerate(values):
                self._producer.produce(
                    INPUT, value.encode(), key=value.encode(), partition=index % PARTITIONS
                )
            if number % 3:
                self._end(self._producer.commit_transaction)
                self.committed += values
            else:
                self._producer.flush(IN_TIME_S)
                self._end(self._producer.abort_transaction)
                self.aborted += values

    @staticmethod
    def _end(call: object) -> None:
        while True:
            try:
                call(IN_TIME_S)  # type: ignore[operator]
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def finish(self) -> None:
        self._enough.set()
        self.join(IN_TIME_S)
        assert not self.is_alive()


class Sink:
    """The records that the query has written so far."""

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **_QUICK,
            }
        )
        places = [TopicPartition(OUTPUT, each, OFFSET_BEGINNING) for each in range(PARTITIONS)]
        self._consumer.assign(places)
        self.seen: Counter[tuple[str, str]] = Counter()

    def wait_for(self, values: list[str]) -> None:
        """Wait until each value is there, with its key."""
        wanted = {(value, f"{value} seen") for value in values}
        give_up = time.monotonic() + IN_TIME_S
        while missing := wanted - self.seen.keys():
            assert time.monotonic() < give_up, sorted(missing)[:10]
            for each in self._consumer.consume(500, 0.2):
                if each.error() is None:
                    self.seen[each.key().decode(), each.value().decode()] += 1

    def close(self) -> None:
        self._consumer.close()


class Driver:
    """The program that runs the query."""

    def __init__(self, servers: str, directory: Path) -> None:
        self._log = directory / "driver"
        program = Path(__file__).with_name("spark_job.py")
        words = [str(program), servers, INPUT, OUTPUT, str(directory / "checkpoint")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words], stdout=log, stderr=log, start_new_session=True, cwd=ROOT
            )

    def stop(self) -> None:
        """Stop the query and then its driver."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(IN_TIME_S) == 0, self.log()

    def kill(self) -> None:
        """Kill the driver and its JVM with SIGKILL."""
        if self._process.poll() is None:
            subprocess.run(["kill", "-9", "--", f"-{self._process.pid}"], check=True)
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        cluster_on(tmp_path, zookeeper) as cluster,
    ):
        yield cluster


def lose_and_regain(cluster: ProcessCluster, broker: int, source: Source, sink: Sink) -> None:
    """Kill and restart a broker; the query continues without it and with it."""
    cluster.brokers[broker].kill()
    before = len(source.committed)
    give_up = time.monotonic() + IN_TIME_S
    while len(source.committed) < before + 10 * PER_TRANSACTION:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    sink.wait_for(list(source.committed))
    cluster.brokers[broker].start()
    cluster.wait_until_full(preferred=True)


@pytest.mark.timeout(1200)
def test_spark_continues_from_its_checkpoint_while_brokers_are_killed(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topics = [NewTopic(each, PARTITIONS, 3) for each in (INPUT, OUTPUT)]
    for done in admin.create_topics(topics).values():
        done.result(IN_TIME_S)
    source, sink = Source(servers), Sink(servers)
    source.start()
    began = time.monotonic()
    driver = Driver(servers, tmp_path)
    try:
        sink.wait_for(["1.0"])
        first = list(source.committed)
        sink.wait_for(first)
        lose_and_regain(cluster, cluster.partition(INPUT, 0).leader, source, sink)
        driver.stop()
        stopped_at = list(source.committed)
        driver = Driver(servers, tmp_path)
        sink.wait_for(stopped_at)
        lose_and_regain(cluster, cluster.wait_for_controller(), source, sink)
        driver.kill()
        driver = Driver(servers, tmp_path)
        lose_and_regain(cluster, cluster.partition(OUTPUT, 1).leader, source, sink)
        source.finish()
        sink.wait_for(source.committed)
        driver.stop()
    finally:
        driver.kill()
        sink.close()
    keys = {key for key, _ in sink.seen}
    assert keys == set(source.committed)
    assert not keys & set(source.aborted)
    # It continued at its checkpoint: nothing of its first batches was written again.
    assert {sink.seen[each, f"{each} seen"] for each in first[:PER_TRANSACTION]} == {1}
    twice = sum(count > 1 for count in sink.seen.values())
    print(
        f"{len(source.committed)} records, {len(source.aborted)} aborted, {twice} more than once, "
        f"{time.monotonic() - began:.0f} s"
    )
