"""Each alert of deploy/monitoring fires in a cluster that has the fault which it watches for.

Prometheus evaluates the rules on three broker processes. A minute of the rules is a second here,
and no alert waits for more than a few seconds: promtool tests how long they wait.
"""

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.pipeline.monitor.progress import (
    BatchEvent,
    BatchFigures,
    Monitor,
    Progress,
    StateOperator,
)
from barnabas.pipeline.monitor.web import WebPage, routes
from barnabas.testing import Cluster
from tests.support.ports import free_port
from tests.support.waiting import until

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
STRANGER = "127.0.0.2"
KEYS = {
    # So long there is no other controller if one does not respond.
    "metadata.session.timeout.ms": 30_000,
    "max.connections.per.ip.overrides": f"{STRANGER}:0",
    # A leader waits so long for a follower whose directory has failed.
    "replica.lag.time.max.ms": 5000,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "auto.create.topics.enable": False,
}
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
    ),
]


class Metered(Cluster):
    """Brokers with a metrics endpoint and two log directories each."""

    def __init__(self) -> None:
        super().__init__(KEYS, processes=True)
        self.metrics = {broker: f"127.0.0.1:{free_port()}" for broker in self.broker_ids}

    def second_directory(self, broker: int) -> Path:
        return self._directory / f"broker-{broker}-second"

    def _make_node(self, broker: int):
        first, second = self._directory / f"broker-{broker}", self.second_directory(broker)
        self._configs["log.dirs"] = f"{first},{second}"
        self._configs["metrics.listener"] = self.metrics[broker]
        return super()._make_node(broker)


class Prometheus:
    """A Prometheus with the rules of the project, in which time passes faster."""

    def __init__(self, directory: Path, targets: list[str]) -> None:
        self._at = f"127.0.0.1:{free_port()}"
        self.fired: set[str] = set()
        quick = re.sub("for: .+", "for: 3s", (MONITORING / "alerts.yaml").read_text())
        quick = re.sub(r"\[(\d+)h", lambda hours: f"[{int(hours[1]) * 5}s", quick)
        (directory / "alerts.yaml").write_text(re.sub(r"(?<=[\[:])(\d+)m\b", r"\1s", quick))
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        config["global"] = {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
        }
        config["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={self._at}",
                "--log.level=error",
            ]
        )
        until(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None
        with suppress(OSError), urlopen(f"http://{self._at}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def wait_for(self, *names: str) -> None:
        """Wait until each of these alerts has fired."""
        until(
            lambda: self._look() >= {f"Barnabas{name}" for name in names},
            lambda: f"fired: {sorted(self.fired)}",
            within_s=90,
        )

    def _look(self) -> set[str]:
        with urlopen(f"http://{self._at}/api/v1/alerts", timeout=5) as answer:
            alerts = json.loads(answer.read())["data"]["alerts"]
        self.fired |= {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}
        return self.fired

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def repeated(step: Callable[[], object], every_s: float) -> Iterator[None]:
    """Repeat a step in a thread, with a pause after each."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Faults:
    """The faults, one after another. The broker `first` is the controller."""

    def __init__(self, cluster: Metered, prometheus: Prometheus) -> None:
        self._cluster = cluster
        self._prometheus = prometheus
        self._servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        self.first = cluster.controller
        self.second, self.third = (each for each in cluster.running if each != self.first)
        admin = AdminClient(self._servers)
        careless = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        both = [self.first, self.second]
        topics = [
            NewTopic("many", 1, 3),
            NewTopic("held", 1, 3),
            NewTopic("alone", replica_assignment=[[self.first]], num_partitions=1),
            NewTopic("careless", replica_assignment=[both], num_partitions=1, config=careless),
        ]
        for created in admin.create_topics(topics).values():
            created.result(30)
        cluster.wait_until_in_sync()

    def _commit(self, group: str, topic: str) -> None:
        consumer = Consumer(self._servers | {"group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        consumer.close()

    def _begin(self, name: str, topic: str, timeout_ms: int) -> Producer:
        """Return a producer with an open transaction that has a record in a topic."""
        own = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
        producer = Producer(self._servers | own)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"v")
        assert producer.flush(30) == 0
        return producer

    def _connect(self) -> None:
        host, _, port = self._cluster.address_of(self.second).rpartition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), 5, (STRANGER, 0)) as it:
            it.recv(1)

    def _stop_for_a_moment(self) -> None:
        self._cluster.pause(self.third)
        time.sleep(0.5)
        self._cluster.resume(self.third)

    def while_all_brokers_run(self, directory: Path) -> None:
        self._commit("waiting", "held")
        self._commit("behind", "many")
        held = self._begin("open", "held", 600_000)
        producer = Producer(self._servers)

        def produce() -> None:
            for _ in range(500):
                producer.produce("many", b"v")
            producer.flush(30)

        def fill() -> None:
            with (directory / "filler").open("ab") as filler:
                filler.write(bytes(1 << 20))

        with repeated(produce, 0.2), repeated(self._connect, 0.05), repeated(fill, 0.1):
            with repeated(self._stop_for_a_moment, 0.2):
                self._prometheus.wait_for("LoopLag")
            self._prometheus.wait_for(
                "LagGrows", "ConnectionsRefused", "ConsumersHeldBack", "DiskFullSoon"
            )
        held.abort_transaction(30)

    def a_directory_fails(self) -> None:
        lost = self._cluster.second_directory(self.first)
        lost.rename(lost.with_name("lost"))
        self._prometheus.wait_for("LogDirectoryOffline", "UnderReplicated")

    def the_controller_stands_still_and_crashes(self) -> None:
        """Its topic `alone` has no other replica: the marker of a transaction has no leader."""
        decided = self._begin("decided", "alone", 600_000)
        self._cluster.pause(self.first)
        self._prometheus.wait_for("BrokerDown", "Controllers")
        self._cluster.kill(self.first)

        def commit() -> None:
            with suppress(Exception):
                decided.commit_transaction(10)

        with repeated(commit, 0.1):
            self._prometheus.wait_for("PartitionsWithoutLeader", "MarkersQueued")

    def a_second_broker_crashes(self) -> None:
        """The transaction log of the last one takes no more decisions.

        A broker that becomes the coordinator now could not load it, and would know no transaction.
        """
        self._cluster.move_coordinator(self.third, transactional_id="overdue")
        self._begin("overdue", "held", 20_000)
        self._cluster.kill(self.second)
        self._prometheus.wait_for("BelowMinInSync", "TransactionsOverdue")

    def an_outdated_replica_leads(self) -> None:
        self._cluster.start_broker(self.first)
        self._prometheus.wait_for("UncleanElection")


def test_each_alert_fires_once_its_fault_is_there(tmp_path: Path) -> None:
    with Metered() as cluster:
        prometheus = Prometheus(tmp_path, list(cluster.metrics.values()))
        try:
            faults = Faults(cluster, prometheus)
            faults.while_all_brokers_run(tmp_path)
            faults.a_directory_fails()
            faults.the_controller_stands_still_and_crashes()
            faults.a_second_broker_crashes()
            faults.an_outdated_replica_leads()
        finally:
            prometheus.stop()
            for broker in cluster.running:
                cluster.kill(broker)
    assert prometheus.fired == rules_of("barnabas")


def rules_of(name: str) -> set[str]:
    """Return the alerts of a group of rules."""
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    [rules] = [group["rules"] for group in groups if group["name"] == name]
    return {rule["alert"] for rule in rules}


def test_alerts_of_a_job_fire_from_its_page(tmp_path: Path) -> None:
    """The job has ended its last batch long ago, and its state grows with every look at it."""
    batch = BatchFigures(1, time.time() - 3600, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1, None, None)
    began = time.monotonic()

    def progress() -> Progress:
        monitor = Monitor("orders", "sink", batch.ended_at_seconds)
        rows = 200_000 + round((time.monotonic() - began) * 1000)
        monitor.add(BatchEvent(batch, (), (StateOperator(0, "dedupe", rows, 1, 0, 0),)))
        return monitor.progress(time.time())

    page = WebPage("127.0.0.1", 0, routes(progress))
    page.start()
    prometheus = Prometheus(tmp_path, [page.address.removeprefix("http://")])
    try:
        prometheus.wait_for("PipelineStalled", "PipelineStateGrows")
    finally:
        prometheus.stop()
        page.stop()
    assert prometheus.fired == rules_of("barnabas-pipeline")
