"""Log managers over directories in memory or on disk, for tests."""

from random import Random

from barnabas.config.topic import TopicConfig
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.files.files import Files
from barnabas.storage.log.log import Log
from barnabas.storage.opening.dir_marks import BrokerIdentity
from barnabas.storage.opening.log_manager import LogManager
from tests.unit.storage.log_bench import SMALL

TOPIC_ID = bytes(range(16))


class Now:
    ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


def make(
    files: Files,
    *paths: str,
    boot_id: str = "boot-1",
    broker_id: int = 1,
    failures: list[LogDirFailed] | None = None,
    now: Now | None = None,
    config: TopicConfig = SMALL,
    settled: bool = True,
    seed: int = 1,
) -> LogManager:
    manager = LogManager(
        files,
        paths or ("/data/a", "/data/b"),
        BrokerIdentity(broker_id, "cluster-1", boot_id),
        now_ms=now or Now(),
        rng=Random(seed),
        producer_expiration_ms=lambda: 86_400_000,
        on_failure=None if failures is None else failures.append,
    )
    manager.open(lambda _: config)
    if settled:
        manager.acknowledge_last_run()
    return manager


def create(manager: LogManager, topic: str, partition: int = 0, **options: bool) -> Log:
    return manager.create(topic, partition, TOPIC_ID, SMALL, **options)
