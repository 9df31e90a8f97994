#!/usr/bin/env bash
# Seen: a static member (group.instance.id) that is killed and started again has its partitions back at once in the
#   classic protocol. In the consumer protocol (KIP-848) its start ends in a fatal error until the session of the dead
#   process is over, 45 s by default, and nobody reads its partitions meanwhile. A consumer of librdkafka that has got
#   the error reports it once and then never joins, also after the session is over.
# Versions: org.apache.kafka:kafka_2.13:4.4.0, confluent-kafka 2.16.1 (librdkafka 2.16).
# Why a guess is wrong: an instance id is there to survive restarts, and the newer protocol is the faster one. The rule
#   is turned round: a classic coordinator lets the newer process in and fences the older one; this one keeps the older
#   one, and takes a second process of the same id for a mistake unless the first has said that it leaves.
# What follows: after a crash the process must end on the fatal error and be started again for as long as a session
#   takes, by a supervisor that does not give up. A loop that ignores errors of poll() is idle for ever. Where restarts
#   are often unclean, a lower consumer.session.timeout.ms of the group, or no instance id.
# Source: KIP-848, UNRELEASED_INSTANCE_ID; throwIfInstanceIdIsUnreleased in Kafka's GroupMetadataManager; the log of
#   librdkafka, "ConsumerGroupHeartbeat fatal error". Java's consumer ends in UnreleasedInstanceIdException.
set -euo pipefail
dir=$(mktemp -d)
kafka=
trap '[ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q confluent-kafka==2.16.1
start_kafka 4.4.0 2

cat >"$dir/member.py" <<'PYTHON'
import sys
from confluent_kafka import Consumer

port, protocol = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": f"127.0.0.1:{port}", "group.id": protocol, "group.protocol": protocol,
    "group.instance.id": "worker-1", "log_level": 0,
})
consumer.subscribe(["orders"], on_assign=lambda _, given: print("assigned", flush=True))
while True:
    message = consumer.poll(1)
    if message is not None and message.error():
        print(message.error().name(), flush=True)
PYTHON
cat >"$dir/seen.py" <<'PYTHON'
import subprocess, sys, time
from pathlib import Path
from confluent_kafka import libversion
from confluent_kafka.admin import AdminClient, NewTopic

port = sys.argv[1]
print("librdkafka", libversion()[0])
admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
for created in admin.create_topics([NewTopic("orders", 2, 1)]).values():
    created.result()


class Process:
    """A process with the static member worker-1, and the first thing that it says."""

    def __init__(self, protocol):
        member = Path(sys.argv[0]).with_name("member.py")
        self.process = subprocess.Popen(
            [sys.executable, member, port, protocol], stdout=subprocess.PIPE, text=True
        )
        self.said = self.process.stdout.readline().strip()

    def kill(self):
        """Kill the process; return what it said behind the first line."""
        self.process.kill()
        return self.process.communicate()[0].split()


Process("classic").kill()
again = Process("classic")
print("classic, killed and started again:", again.said)
again.kill()

Process("consumer").kill()
begun = time.monotonic()
early = Process("consumer")
print("consumer, killed and started again:", early.said)
while admin.describe_consumer_groups(["consumer"])["consumer"].result().members:
    assert time.monotonic() - begun < 100
    time.sleep(0.5)
session = time.monotonic() - begun
print("the coordinator drops the dead member after 30 to 60 s:", 30 < session < 60)
time.sleep(15)
late = Process("consumer")
print("started 15 s later:", late.said)
print("the process of the fatal error has said since:", early.kill())
late.kill()
print(f"the session took {session:.0f} s", file=sys.stderr)
PYTHON
"$dir/venv/bin/python" "$dir/seen.py" "$port" | tee "$dir/said"
diff "$dir/said" - <<'EXPECTED'
librdkafka 2.16.0
classic, killed and started again: assigned
consumer, killed and started again: _FATAL
the coordinator drops the dead member after 30 to 60 s: True
started 15 s later: assigned
the process of the fatal error has said since: []
EXPECTED
