#!/usr/bin/env bash
# Seen: an application with static members (group.instance.id) changes to the consumer protocol (KIP-848), one process
#   after the other. Partitions that were added to the topic shortly before are read by no member from then on: the
#   group is Stable, no member has an error, and its lag grows. They are assigned when a member joins or leaves, or the
#   topic changes again.
# Versions: org.apache.kafka:kafka_2.13:4.4.0, confluent-kafka 2.16.1 (librdkafka 2.16).
# Why a guess is wrong: in both protocols new partitions are found by themselves: by the leader of a classic group
#   within metadata.max.age.ms, 5 min by default, by the coordinator of a consumer group at once. The change of the
#   protocol falls between the two: the coordinator takes the leader's old assignment as the target for the topic as it
#   is by now, and waits for the next difference.
# What follows: do not add partitions within 5 min before such a change. Afterwards compare the partitions of the
#   members with those of the topic; one restart without an instance id is enough to have them assigned.
# Source: KAFKA-18687, since which a static member that upgrades a group does not begin an epoch.
set -euo pipefail
dir=$(mktemp -d)
kafka=
trap '[ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q confluent-kafka==2.16.1
start_kafka 4.4.0 2

cat >"$dir/seen.py" <<'PYTHON'
import sys, time
from confluent_kafka import Consumer, libversion
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

port = sys.argv[1]
print("librdkafka", libversion()[0])
admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
for created in admin.create_topics([NewTopic("orders", 2, 1)]).values():
    created.result()


def member(protocol, instance=None):
    options = {
        "bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "group.protocol": protocol, "log_level": 0,
        "partition.assignment.strategy": "range" if protocol == "classic" else None,
        "group.instance.id": instance,
    }
    consumer = Consumer({key: value for key, value in options.items() if value is not None})
    consumer.subscribe(["orders"])
    return consumer


def partitions(seconds, *consumers):
    """Return the partitions of the consumers after some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for consumer in consumers:
            consumer.poll(0.1)
    return sorted(each.partition for consumer in consumers for each in consumer.assignment())


one = member("classic", "worker-1")
print("classic:", partitions(10, one))
for grown in admin.create_partitions([NewPartitions("orders", 4)]).values():
    grown.result()
one.close()
one = member("consumer", "worker-1")
print("4 partitions by now, consumer protocol, after 60 s:", partitions(60, one))
group = admin.describe_consumer_groups(["g"])["g"].result()
print("state, members:", group.state.name, len(group.members))
other = member("consumer")
print("another member joins:", partitions(20, one, other))
one.close()
other.close()
PYTHON
"$dir/venv/bin/python" "$dir/seen.py" "$port" | tee "$dir/said"
diff "$dir/said" - <<'EXPECTED'
librdkafka 2.16.0
classic: [0, 1]
4 partitions by now, consumer protocol, after 60 s: [0, 1]
state, members: STABLE 1
another member joins: [0, 1, 2, 3]
EXPECTED
