"""Apache Kafka's command-line tools and classes, run against any broker or any log file."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.referee.jars import require
from tests.referee.kafka import SMALL, java

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"


@dataclass(frozen=True, slots=True)
class Finished:
    """What a tool did; `text` is its standard output, `errors` its standard error."""

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
    """Runs one Java class to its end; `classpath` comes before Kafka's jars."""
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


def tool(main: str, bootstrap_servers: str, *arguments: str, stdin: str = "") -> str:
    """Runs a tool against a broker and returns what it printed; fails where the tool failed."""
    done = run(main, "--bootstrap-server", bootstrap_servers, *arguments, stdin=stdin)
    assert done.code == 0, f"{main} {arguments}: {done.errors}{done.text}"
    return done.text


def dump_log(*files: Path, options: Sequence[str] = ("--deep-iteration",)) -> str:
    """What Kafka's DumpLogSegments says of segment, index or snapshot files, mismatches last."""
    names = ",".join(map(str, files))
    done = run(DUMP_LOG_SEGMENTS, "--files", names, *options)
    assert done.code == 0, done.errors + done.text
    return done.text + done.errors
