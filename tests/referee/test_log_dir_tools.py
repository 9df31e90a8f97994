"""Apache Kafka's tools move a replica between the directories of a broker, and show where it is."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.kafka import tools as kafka
from tests.support.kafka.tools import Tools
from tests.support.waiting import until

BYTES = 900_000

pytestmark = pytest.mark.xdist_group("referee-tools")


class TwoDirectories:
    """A broker of two directories, a topic in one of them, and Kafka's tools."""

    def __init__(self, broker: Broker, tools: Tools, directory: Path) -> None:
        self._servers = broker.bootstrap_servers
        self._tools = tools
        self._file = directory / "plan"
        self.directories = [str(directory / name) for name in "ab"]
        self.run(kafka.TOPICS, "--create", "--topic", "t")
        for _ in range(2):
            self.run(kafka.CONSOLE_PRODUCER, "--topic", "t", stdin="x" * BYTES + "\n")

    def run(self, main: str, *arguments: str, stdin: str = "") -> str:
        two = ("--bootstrap-server", self._servers)
        done = self._tools.run(main, *two, *arguments, stdin=stdin)
        assert done.code == 0, f"{main} {arguments}: {done.errors}{done.text}"
        return done.text

    def described(self) -> dict[str, dict[str, int | bool | str]]:
        """Return the output of LogDirsCommand for t-0, by directory."""
        said = self.run(kafka.LOG_DIRS, "--describe", "--topic-list", "t")
        (broker,) = json.loads(said.strip().splitlines()[-1])["brokers"]
        return {
            each["logDir"]: row
            for each in broker["logDirs"]
            for row in each["partitions"]
            if row["partition"] == "t-0"
        }

    def reassign(self, path: str, *options: str) -> str:
        row = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [path]}
        self._file.write_text(json.dumps({"version": 1, "partitions": [row]}))
        file = ("--reassignment-json-file", str(self._file))
        return self.run(kafka.REASSIGN_PARTITIONS, *file, *options)


@pytest.fixture
def two(tools: Tools, tmp_path: Path) -> Iterator[TwoDirectories]:
    configs = {"broker.id": "1", "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    with Broker(configs, data_dir=tmp_path / "broker") as broker:
        yield TwoDirectories(broker, tools, tmp_path)


def test_replica_move_is_throttled_and_then_unthrottled(two: TwoDirectories) -> None:
    (here,) = two.described()
    (there,) = set(two.directories) - {here}
    begun = two.reassign(there, "--execute", "--replica-alter-log-dirs-throttle", "1")
    assert f"Successfully started moving log directory to {there} for replica t-0" in begun
    until(lambda: two.described().get(there, {}).get("offsetLag") == 1)
    both = two.described()
    assert (both[here]["isFuture"], both[there]["isFuture"]) == (False, True)
    assert "is still in progress" in two.reassign(there, "--verify")
    two.reassign(
        there, "--execute", "--additional", "--replica-alter-log-dirs-throttle", "100000000"
    )
    until(lambda: set(two.described()) == {there})
    moved = two.described()[there]
    assert (moved["isFuture"], moved["offsetLag"]) == (False, 0)
    assert int(moved["size"]) > 2 * BYTES
    done = two.reassign(there, "--verify")
    assert "Reassignment of replica t-0-1 completed successfully" in done


def test_unknown_directory_is_refused(two: TwoDirectories) -> None:
    with pytest.raises(AssertionError, match="LogDirNotFoundException"):
        two.reassign("/no/such/directory", "--execute")
