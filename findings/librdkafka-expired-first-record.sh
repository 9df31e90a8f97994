#!/usr/bin/env bash
# Seen: an idempotent producer of librdkafka writes records twice and reports each as delivered once.
#   The first record of a batch expires (message.timeout.ms) while the batch is in flight, and the broker has written
#   the batch but its answer is lost. The other records of the batch are sent again and are there twice. The record
#   that expired is there too, although it is reported as failed.
# Versions: confluent-kafka 2.16.1 (librdkafka 2.16), Apache Kafka 4.3.1.
# Why a guess is wrong: "idempotent" promises no duplicates within a session, and Java's producer expires whole batches.
#   librdkafka expires single records. The batch that is left begins with another record, so it cannot be sent again
#   under its old sequence numbers: the client raises the epoch, and to the broker the records are new.
# What follows: message.timeout.ms above the longest outage (5 minutes by default), or transactions. After a record that
#   timed out, its neighbours may be there twice.
# Source: debug=eos,msg shows "timed out 0+1 message(s)" and "bumped epoch"; INTRODUCTION.md of librdkafka, on
#   message.timeout.ms and the idempotent producer.
set -euo pipefail
dir=$(mktemp -d)
jobs=()
trap 'for job in "${jobs[@]}"; do kill "$job" 2>/dev/null || true; done; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q confluent-kafka==2.16.1
proxy_port=$(free_port)
start_kafka 4.3.1 2 "$proxy_port"
jobs+=("$kafka")

cat >"$dir/seen.py" <<'END'
import asyncio, sys, threading, time
from confluent_kafka import Consumer, Producer, TopicPartition, libversion

BROKER, PROXY = int(sys.argv[1]), int(sys.argv[2])
lost = threading.Event()


async def proxy():
    """Pass everything on; while `lost` is set, lose what the broker answers."""
    async def pump(source, sink, answers):
        while data := await source.read(65536):
            if not (answers and lost.is_set()):
                sink.write(data)
        sink.close()

    async def connection(reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", BROKER)
        await asyncio.gather(
            pump(reader, up_writer, False), pump(up_reader, writer, True), return_exceptions=True
        )

    server = await asyncio.start_server(connection, "127.0.0.1", PROXY)
    await server.serve_forever()


threading.Thread(target=asyncio.run, args=(proxy(),), daemon=True).start()
reported = {}
producer = Producer({
    "bootstrap.servers": f"127.0.0.1:{PROXY}", "enable.idempotence": True, "log_level": 0,
    "message.timeout.ms": 4000, "linger.ms": 2500, "reconnect.backoff.ms": 100,
})


def produce(value):
    def told(error, message):
        reported[value] = error.name() if error else "delivered"
    producer.produce("orders", value, partition=0, on_delivery=told)


produce("before")
producer.flush()
lost.set()
produce("first")
end = time.monotonic() + 2
while time.monotonic() < end:
    producer.poll(0.1)
produce("second")
produce("third")
while "first" not in reported:
    producer.poll(0.1)
lost.clear()
producer.flush()

consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{PROXY}", "group.id": "reader"})
end = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30)[1]
consumer.assign([TopicPartition("orders", 0, 0)])
stored = []
while len(stored) < end:
    message = consumer.poll(1)
    if message is not None and not message.error():
        stored.append(message.value().decode())
consumer.close()
print("librdkafka", libversion()[0])
print("reported:", reported)
print("in the topic:", stored)
assert reported == {
    "before": "delivered", "first": "_MSG_TIMED_OUT", "second": "delivered", "third": "delivered"
}
assert stored == ["before", "first", "second", "third", "second", "third"]
END
"$dir/venv/bin/python" "$dir/seen.py" "$port" "$proxy_port"
echo "behaviour: records reported as delivered once are in the topic twice, and the one reported as failed is there"
