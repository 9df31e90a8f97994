#!/usr/bin/env bash
# Seen: in a consumer group (KIP-848) one member that sets group.remote.assignor decides for all members that set
#   nothing. A fourth member with `range` joins three without a choice: the group changes from `uniform` to `range`, and
#   of three topics with two partitions two members get everything and two get nothing. It leaves, and all moves back.
# Versions: org.apache.kafka:kafka_2.13:4.4.0, confluent-kafka 2.16.1 (librdkafka 2.16).
# Why a guess is wrong: the classic protocol takes only a strategy that every member lists, and "the most used assignor"
#   of the KIP sounds like a majority. No choice is no vote for the broker's default assignor: only members that name
#   one are counted, so one vote of four wins.
# What follows: a debugging tool, or one deployment that is a step ahead, moves the partitions of the whole group twice.
#   Set group.remote.assignor in all members or in none. By its source franz-go 1.22 always names one (`range` if that
#   is its first balancer), so it decides for clients that name none.
# Source: ConsumerGroup.computePreferredServerAssignor of Kafka counts the members that name one and takes the largest
#   count; KAFKA-20434 (4.4) has the group recompute its assignment when the result changes; `mkreq` of franz-go's
#   consumer_group_848.go.
set -euo pipefail
dir=$(mktemp -d)
kafka=
trap '[ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q confluent-kafka==2.16.1
start_kafka 4.4.0 2

cat >"$dir/seen.py" <<'PYTHON'
import sys, threading, time
from confluent_kafka import Consumer, KafkaException, libversion
from confluent_kafka.admin import AdminClient, NewTopic

brokers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}"}
admin = AdminClient(brokers)
topics = ["orders", "payments", "refunds"]
for created in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
    created.result()


class Member:
    """A consumer, a thread that polls it, and the number of partitions that it had to give up."""

    def __init__(self, **config):
        self.consumer = Consumer(brokers | {
            "group.id": "readers", "group.protocol": "consumer", "log_level": 0,
        } | config)
        self.given_up = 0
        self.consumer.subscribe(topics, on_revoke=self.revoked)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.poll, daemon=True)
        self.thread.start()

    def revoked(self, consumer, partitions):
        self.given_up += len(partitions)

    def poll(self):
        while not self.ended.is_set():
            self.consumer.poll(0.1)

    def close(self):
        self.ended.set()
        self.thread.join()
        self.consumer.close()


def settled(count):
    """Return the group's assignor, and how many partitions each of its `count` members has."""
    end = time.monotonic() + 100
    group = shares = None
    while time.monotonic() < end:
        time.sleep(0.2)
        try:
            group = admin.describe_consumer_groups(["readers"])["readers"].result()
        except KafkaException:  # the coordinator is not there yet
            continue
        shares = sorted(len(each.assignment.topic_partitions) for each in group.members)
        if len(shares) == count and sum(shares) == 6 and group.state.name == "STABLE":
            return group.partition_assignor, shares
    raise SystemExit(f"the group has not settled: {group and group.state}, {shares}")


print("librdkafka", libversion()[0])
three = [Member() for _ in range(3)]
print("three members that set nothing:", *settled(3))
for each in three:
    each.given_up = 0
fourth = Member(**{"group.remote.assignor": "range"})
print("a fourth one sets range:", *settled(4))
fourth.close()
print("it has left:", *settled(3))
print("partitions that the three gave up, at least 6:", sum(each.given_up for each in three) >= 6)
for each in three:
    each.close()
PYTHON
"$dir/venv/bin/python" "$dir/seen.py" "$port" | tee "$dir/said"
diff "$dir/said" - <<'EXPECTED'
librdkafka 2.16.0
three members that set nothing: uniform [2, 2, 2]
a fourth one sets range: range [0, 0, 3, 3]
it has left: uniform [2, 2, 2]
partitions that the three gave up, at least 6: True
EXPECTED
