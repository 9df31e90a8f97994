#!/usr/bin/env bash
# Seen: with kombu's Kafka transport (Celery's too) the acknowledgement of one message acknowledges every message that
#   the process has received. If it then dies, the unfinished ones never come again, also with task_acks_late.
# Versions: kombu 5.7.0 with confluent-kafka 2.16.1, Apache Kafka 4.3.1.
# Why a guess is wrong: on kombu's other transports an unacknowledged message comes again after a crash, and late
#   acknowledgement exists for that. Here QoS.ack() calls commit() without offsets, which commits the position of the
#   consumer, behind everything it has fetched.
# What follows: a worker that must not lose tasks runs one at a time, with worker_prefetch_multiplier=1 and no
#   concurrency, or uses another transport.
# Source: QoS.ack in kombu/transport/confluentkafka.py; the manual of confluent-kafka on Consumer.commit().
set -euo pipefail
dir=$(mktemp -d)
kafka=
trap '[ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q kombu==5.7.0 confluent-kafka==2.16.1
start_kafka 4.3.1 2

cat >"$dir/worker.py" <<'END'
import os, queue, sys
from kombu import Connection

port, topic, acknowledge, wanted, patience_s = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
tasks = Connection(f"confluentkafka://127.0.0.1:{port}").SimpleQueue(topic)
if wanted == 2 and acknowledge >= 0:
    tasks.put("slow")
    tasks.put("quick")
received = []
try:
    while len(received) < wanted:
        message = tasks.get(timeout=patience_s)
        received.append(message.payload)
        if len(received) == acknowledge:
            message.ack()
except queue.Empty:
    pass
print(" ".join(received) or "nothing", flush=True)
os._exit(0)  # the worker dies
END
worker() { "$dir/venv/bin/python" "$dir/worker.py" "$port" "$@" 2>/dev/null; }

"$dir/venv/bin/pip" list 2>/dev/null | grep -E "kombu|confluent"
echo "first worker received: $(worker control 0 2 60), acknowledged none, and died"
control=$(worker control -1 2 90)
echo "second worker received: $control"
echo "first worker received: $(worker tasks 2 2 60), acknowledged quick, and died"
after=$(worker tasks -1 1 90)
echo "second worker received: $after"
[ "$control" = "slow quick" ] && [ "$after" = "nothing" ]
echo "behaviour: the task that was not acknowledged is lost if a later one was"
