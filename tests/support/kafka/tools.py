"""Apache Kafka's command-line tools and classes, run against any broker or any log file.

`Tools` runs them in one JVM; `run` starts a JVM for one class.
"""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka.jars import require
from tests.support.kafka.node import SMALL, java
from tests.support.kafka.resident import Resident

Tool = Callable[..., str]
"""Takes a tool's class and its arguments, and returns its standard output."""

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a tool; `text` is its standard output, `errors` its standard error."""

    code: int
    text: str
    errors: str


def run(
    main: str,
    *arguments: str,
    stdin: str = "",
    timeout_s: float = 60,
    heap: Sequence[str] = SMALL,
    classpath: Sequence[Path] = (),
) -> Finished:
    """Run one Java class to its end; `classpath` comes before Kafka's jars."""
    path = ":".join([*map(str, classpath), require()])
    done = subprocess.run(
        [*java(path, heap), main, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


class Tools:
    """Kafka's tools in a JVM that stays (`jvm.start`): a call takes a fraction of a second."""

    def __init__(self, process: Resident) -> None:
        self._process = process

    def run(self, main: str, *arguments: str, stdin: str = "") -> Finished:
        """Run a tool to its end."""
        done = self._process.call("tool", main=main, arguments=arguments, stdin=stdin)
        return Finished(done["code"], done["text"], done["errors"])

    def at(self, bootstrap: str) -> Tool:
        """Return the tools for the brokers at that address; AssertionError if one fails."""

        def run(main: str, *arguments: str, stdin: str = "") -> str:
            done = self.run(main, "--bootstrap-server", bootstrap, *arguments, stdin=stdin)
            assert done.code == 0, f"{main} {arguments}: {done.errors}{done.text}"
            return done.text

        return run

    def dump_log(self, *files: Path, options: Sequence[str] = ("--deep-iteration",)) -> str:
        """Return the output of DumpLogSegments for segment, index or snapshot files, mismatches
        last."""
        done = self.run(DUMP_LOG_SEGMENTS, "--files", ",".join(map(str, files)), *options)
        assert done.code == 0, done.errors + done.text
        return done.text + done.errors
