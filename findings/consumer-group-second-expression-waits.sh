#!/usr/bin/env bash
# Seen: a member of a consumer group (KIP-848) that brings a second expression to its group gets nothing for 15 s, if the
#   first one was resolved just before. As the only expression of a group, or by name in the same group, it is served
#   within 5 s. A topic that is created soon after a resolution waits for 9 to 14 s, by name for 4 s, and a member with
#   auto.offset.reset=latest never reads what is written to it meanwhile.
# Versions: org.apache.kafka:kafka_2.13:4.4.0, confluent-kafka 2.16.1 (librdkafka 2.16).
# Why a guess is wrong: the broker knows all topics, and resolves an expression as soon as a group has its first one, so
#   tests with one member show no wait. But all expressions of a group are resolved together, at the earliest 10 s
#   after the last time, when a member's next heartbeat (5 s) asks for it; the result comes with one more heartbeat.
#   No key changes the 10 s: group.consumer.regex.refresh.interval.ms is the other end, and has them as its minimum.
# What follows: a rollout that changes the expression leaves the first new member idle at first; that is no failure.
#   Topics that must be read from their first second are subscribed to by name, or with auto.offset.reset=earliest.
# Source: REGEX_BATCH_REFRESH_MIN_INTERVAL_MS and maybeUpdateRegularExpressions in Kafka's GroupMetadataManager.
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
from confluent_kafka import Consumer, Producer, libversion
from confluent_kafka.admin import AdminClient, NewTopic

brokers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}"}
admin = AdminClient(brokers)
producer = Producer(brokers)


def create(*topics):
    for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        created.result()


class Member:
    """A consumer and a thread that polls it: when it was given each topic, and what it read first."""

    def __init__(self, group, subscription):
        self.consumer = Consumer(brokers | {
            "group.id": group, "group.protocol": "consumer", "auto.offset.reset": "latest", "log_level": 0,
        })
        self.given, self.first = {}, None
        self.begun = time.monotonic()
        self.consumer.subscribe([subscription], on_assign=self.assigned)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.poll, daemon=True)
        self.thread.start()

    def assigned(self, consumer, partitions):
        self.given |= {each.topic: time.monotonic() for each in partitions}

    def poll(self):
        while not self.ended.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and not message.error() and self.first is None:
                self.first = int(message.value())

    def wait(self, topic, begun=None):
        """Return after how many seconds the member was given a topic."""
        begun = begun or self.begun
        while topic not in self.given:
            assert time.monotonic() - begun < 100
            time.sleep(0.05)
        return self.given[topic] - begun

    def close(self):
        self.ended.set()
        self.thread.join()
        self.consumer.close()


def show(what, seconds):
    print(f"{what}: {'below 8 s' if seconds < 8 else '8 to 25 s' if seconds < 25 else 'more'}")
    print(f"{what}: {seconds:.1f} s", file=sys.stderr)


print("librdkafka", libversion()[0])
create("orders.a", "payments.a")
Member("first", "orders.a").wait("orders.a")  # the coordinator is there
members = [Member("one", "^payments[.].*"), Member("two", "^orders[.].*"), Member("three", "^orders[.].*")]
time.sleep(2)
members += [Member("two", "^payments[.].*"), Member("three", "payments.a")]
show("the only expression of a group", members[0].wait("payments.a"))
show("the second one of a group", members[3].wait("payments.a"))
show("a name in a group with an expression", members[4].wait("payments.a"))
for each in members:
    each.close()

by_name = Member("names", "refunds.a")
by_expression = Member("expressions", "^(orders|refunds)[.].*")
by_expression.wait("orders.a")
time.sleep(1)
create("refunds.a")
begun = time.monotonic()
number = 0
while by_name.first is None or by_expression.first is None:
    assert number < 500
    number += 1
    producer.produce("refunds.a", str(number))
    producer.flush()
    time.sleep(0.2)
show("a new topic by name", by_name.wait("refunds.a", begun))
show("a new topic by expression", by_expression.wait("refunds.a", begun))
print("records that only the member by name has read:", by_expression.first > by_name.first + 10)
print(f"first records: {by_name.first}, {by_expression.first}", file=sys.stderr)
by_name.close()
by_expression.close()
PYTHON
"$dir/venv/bin/python" "$dir/seen.py" "$port" | tee "$dir/said"
diff "$dir/said" - <<'EXPECTED'
librdkafka 2.16.0
the only expression of a group: below 8 s
the second one of a group: 8 to 25 s
a name in a group with an expression: below 8 s
a new topic by name: below 8 s
a new topic by expression: 8 to 25 s
records that only the member by name has read: True
EXPECTED
