#!/usr/bin/env bash
# Seen: with consumer.override.group.protocol=consumer (KIP-848) a sink task of Kafka Connect that is idle, as it has
#   read nothing since its last periodic commit of offsets, fails with UnsupportedOperationException when it gives up a
#   partition because another member joins its group. In the classic protocol, eager or cooperative, it goes on.
# Versions: org.apache.kafka:connect-runtime:4.4.0 and kafka_2.13:4.4.0, confluent-kafka 2.16.1.
# Why a guess is wrong: Connect takes the key without a word, the sink works while it is alone and while it is busy, and
#   an idle task with nothing left to commit is the one that a rebalance should hurt least. But Connect goes on using
#   the map of offsets that the consumer gives back after an asynchronous commit: the classic consumer gives back the
#   map that it was given, the newer one a map that cannot be changed. By the source, records read since would
#   replace it: the commit before the revocation takes a map of Connect's own.
# What follows: leave sinks on the classic protocol. A failed task is not started again by itself: see the
#   status of the tasks after another member has joined.
# Source: WorkerSinkTask in Kafka's connect/runtime: onPartitionsRemoved, recordCommittedOffsets and clearOffsets.
set -euo pipefail
dir=$(mktemp -d)
kafka=
worker=
trap '[ -z "$worker" ] || kill "$worker"; [ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q confluent-kafka==2.16.1
fetch connect org.apache.kafka:connect-runtime:4.4.0 org.apache.logging.log4j:log4j-slf4j-impl:2.25.4
start_kafka 4.4.0 2

cat >"$dir/Sink.java" <<'JAVA'
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.*;

public class Sink extends SinkConnector {
    public static class Quiet extends SinkTask {
        @Override public void start(Map<String, String> config) {}
        @Override public void put(Collection<SinkRecord> records) {}
        @Override public void stop() {}
        @Override public String version() { return "1"; }
    }

    @Override public void start(Map<String, String> config) {}
    @Override public List<Map<String, String>> taskConfigs(int most) { return List.of(Map.of()); }
    @Override public Class<? extends Task> taskClass() { return Quiet.class; }
    @Override public void stop() {}
    @Override public ConfigDef config() { return new ConfigDef(); }
    @Override public String version() { return "1"; }
}
JAVA
javac -cp "$dir/connect/*" -d "$dir/classes" "$dir/Sink.java"
rest=$(free_port)
cat >"$dir/worker.properties" <<END
bootstrap.servers=127.0.0.1:$port
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename=$dir/offsets
offset.flush.interval.ms=1000
connector.client.config.override.policy=All
plugin.discovery=only_scan
listeners=HTTP://127.0.0.1:$rest
END
java -Xmx384m -XX:+UseSerialGC -cp "$dir/classes:$dir/connect/*" org.apache.kafka.connect.cli.ConnectStandalone \
    "$dir/worker.properties" >"$dir/connect.log" 2>&1 &
worker=$!

cat >"$dir/seen.py" <<'PYTHON'
import json, sys, time, urllib.request
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

port, rest = sys.argv[1:]
servers = {"bootstrap.servers": f"127.0.0.1:{port}"}
package = "org.apache.kafka.clients.consumer"
admin = AdminClient(servers)


def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{rest}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def wait(condition):
    """Return what the condition returns as soon as it is true."""
    end = time.monotonic() + 120
    while not (met := condition()):
        assert time.monotonic() < end
        time.sleep(0.3)
    return met


def version():
    try:
        return call("/")["version"]
    except OSError:
        return None


def committed(topic):
    watching = Consumer({**servers, "group.id": f"connect-{topic}", "log_level": 0})
    asked = [TopicPartition(topic, partition) for partition in range(2)]
    try:
        return [each.offset for each in watching.committed(asked, timeout=30)]
    except KafkaException:  # The group's coordinator is being made.
        return None
    finally:
        watching.close()


def show(name, protocol, assignor=None, same=None):
    """A sink has read and committed a record of each partition; then another member joins its group.

    Both have the same assignor, under Java's name and under librdkafka's.
    """
    for created in admin.create_topics([NewTopic(name, 2, 1)]).values():
        created.result()
    producer = Producer(servers)
    for partition in range(2):
        producer.produce(name, "v", partition=partition)
    producer.flush()
    override = {"consumer.override.group.protocol": protocol}
    options = {**servers, "group.id": f"connect-{name}", "group.protocol": protocol, "log_level": 0}
    if assignor:
        override["consumer.override.partition.assignment.strategy"] = f"{package}.{assignor}"
        options["partition.assignment.strategy"] = same
    sink = {"connector.class": "Sink", "topics": name, "tasks.max": "1", **override}
    call("/connectors", {"name": name, "config": sink})
    wait(lambda: committed(name) == [1, 1])
    time.sleep(3)
    other = Consumer(options)
    other.subscribe([name])
    end = time.monotonic() + 20
    while time.monotonic() < end:
        other.poll(0.2)
    task = call(f"/connectors/{name}/status")["tasks"][0]
    trace = task.get("trace", "").splitlines()
    where = ["in clearOffsets" for line in trace if ".clearOffsets(" in line]
    print(f"{name}: task {task['state']}", *trace[:1], *where)
    print(f"{name}: partitions of the other member:", len(other.assignment()))
    if trace:
        print(*trace[:4], sep="\n", file=sys.stderr)
    other.close()


print("Kafka Connect", wait(version))
show("eager", "classic", "RangeAssignor", "range")
show("cooperative", "classic", "CooperativeStickyAssignor", "cooperative-sticky")
show("newer", "consumer")
PYTHON
"$dir/venv/bin/python" "$dir/seen.py" "$port" "$rest" | tee "$dir/said" || tail -n 30 "$dir/connect.log"
diff "$dir/said" - <<'EXPECTED'
Kafka Connect 4.4.0
eager: task RUNNING
eager: partitions of the other member: 1
cooperative: task RUNNING
cooperative: partitions of the other member: 1
newer: task FAILED java.lang.UnsupportedOperationException in clearOffsets
newer: partitions of the other member: 2
EXPECTED
