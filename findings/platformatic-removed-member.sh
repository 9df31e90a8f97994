#!/usr/bin/env bash
# Seen: a member of @platformatic/kafka in the consumer protocol (KIP-848, groupProtocol 'consumer') is stopped for
#   longer than its session and goes on: 30 s later it is still in no group. It keeps the partitions that it had, and a
#   record written then is read by it and by the member that has them by now. Nothing is thrown, and the stream goes on
#   without commits and with autocommit; a commit of the message fails, and the stream has not ended 30 s later. A
#   consumer of librdkafka that was stopped with it is back in its group.
# Versions: @platformatic/kafka 2.12.1, org.apache.kafka:kafka_2.13:4.4.0, confluent-kafka 2.16.1 (librdkafka 2.16).
# Why a guess is wrong: the protocol asks a member that the coordinator no longer knows to give up all and to join with
#   epoch 0, and the library does so after FENCED_MEMBER_EPOCH. The answer to a heartbeat after the session is
#   UNKNOWN_MEMBER_ID, though, and there it repeats the heartbeat of the old epoch, every few seconds and for ever.
# What follows: a laptop that slept, a frozen container or a long pause leaves a second reader behind. Let the
#   application end the consumer and make another one when a heartbeat or a commit fails, or stay with the classic
#   protocol.
# Source: performConsumerGroupHeartbeat in the package's dist/clients/consumer/consumer.js; KIP-848, the member's part.
set -euo pipefail
dir=$(mktemp -d)
kafka=
trap '[ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q confluent-kafka==2.16.1
npm install --silent --no-fund --no-audit --prefix "$dir" @platformatic/kafka@2.12.1
start_kafka 4.4.0 2

cat >"$dir/member.mjs" <<'NODE'
// Node 20 lacks it; the client asks for 22.
Promise.withResolvers ??= function () {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
};
const { Consumer, stringDeserializers } = await import("@platformatic/kafka");

const [port, groupId, commits] = process.argv.slice(2);
const consumer = new Consumer({
  groupId,
  groupProtocol: "consumer",
  clientId: "member",
  bootstrapBrokers: [`127.0.0.1:${port}`],
  deserializers: stringDeserializers,
});
try {
  const stream = await consumer.consume({
    topics: ["orders"], mode: "latest", autocommit: commits === "autocommit",
  });
  console.log("joined");
  for await (const message of stream) {
    console.log("read", message.value);
    if (commits === "manual") message.commit((error) => console.log(error ? "not committed" : "committed"));
  }
  console.log("ended");
} catch (error) {
  console.log("ended");
  console.error(error);
}
NODE
cat >"$dir/member.py" <<'PYTHON'
import sys
from confluent_kafka import Consumer

port, group = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": f"127.0.0.1:{port}", "group.id": group, "group.protocol": "consumer",
    "log_level": 0,
})
consumer.subscribe(["orders"], on_assign=lambda _, given: print("joined", flush=True))
while True:
    message = consumer.poll(1)
    if message is not None and not message.error():
        print("read", message.value().decode(), flush=True)
PYTHON
cat >"$dir/seen.py" <<'PYTHON'
import json, signal, subprocess, sys, time
from pathlib import Path
from confluent_kafka import Producer, libversion
from confluent_kafka.admin import AdminClient, NewTopic

port, directory = sys.argv[1:]
servers = {"bootstrap.servers": f"127.0.0.1:{port}"}
package = Path(directory, "node_modules/@platformatic/kafka/package.json")
print("@platformatic/kafka", json.loads(package.read_text())["version"])
print("librdkafka", libversion()[0])
admin = AdminClient(servers)
for created in admin.create_topics([NewTopic("orders", 1, 1)]).values():
    created.result()
started = []


class Process:
    """A member of a group of its own, and what it has said."""

    def __init__(self, group, *command):
        self.group = group
        self.output = Path(directory, f"{group}.{len(started)}")
        with self.output.open("w") as output:
            self.process = subprocess.Popen([*command[:2], port, group, *command[2:]], stdout=output)
        started.append(self)
        wait(lambda: "joined" in self.said() and self.members() > 0)

    def said(self):
        return self.output.read_text().splitlines()

    def members(self):
        return len(admin.describe_consumer_groups([self.group])[self.group].result().members)


def wait(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.5)


python = (sys.executable, f"{directory}/member.py")
node = ("node", f"{directory}/member.mjs")
try:
    control = Process("librdkafka", *python)
    removed = [Process(commits, *node, commits) for commits in ("none", "autocommit", "manual")]
    for each in (control, *removed):
        each.process.send_signal(signal.SIGSTOP)
    wait(lambda: not any(each.members() for each in started))
    print("all were stopped until their groups were empty")
    for each in (control, *removed):
        each.process.send_signal(signal.SIGCONT)
    time.sleep(30)
    for each in (control, *removed):
        print(f"{each.group}: members of its group 30 s later:", each.members())
    others = [Process(each.group, *python) for each in removed]
    time.sleep(5)
    producer = Producer(servers)
    producer.produce("orders", "after")
    producer.flush()
    time.sleep(30)
    print("a record is written after another member has joined each of the groups")
    for each, other in zip(removed, others):
        print(f"{each.group}: {each.said()[1:]}, the other: {other.said()[1:]}, members: {each.members()}")
finally:
    for each in started:
        each.process.kill()
PYTHON
"$dir/venv/bin/python" "$dir/seen.py" "$port" "$dir" 2>"$dir/errors" | tee "$dir/said" || cat "$dir/errors"
diff "$dir/said" - <<'EXPECTED'
@platformatic/kafka 2.12.1
librdkafka 2.16.0
all were stopped until their groups were empty
librdkafka: members of its group 30 s later: 1
none: members of its group 30 s later: 0
autocommit: members of its group 30 s later: 0
manual: members of its group 30 s later: 0
a record is written after another member has joined each of the groups
none: ['read after'], the other: ['read after'], members: 1
autocommit: ['read after'], the other: ['read after'], members: 1
manual: ['read after', 'not committed'], the other: ['read after'], members: 1
EXPECTED
