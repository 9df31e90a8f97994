"""confluent-kafka as a member of a group.

    python -m tests.integration.interop.member_program SERVERS TOPIC GROUP PROTOCOL

It prints the partitions that it owns whenever they change, as "owns 0 1 2", and each record as
"read PARTITION VALUE", before it commits the record's offset. It leaves the group on SIGTERM.
"""

import signal
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException

from tests.support.group_protocols import settings


def main() -> None:
    servers, topic, group, protocol = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            **settings(protocol),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
    )

    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    consumer.subscribe([topic])
    owned = None
    while not signals:
        records = [each for each in consumer.consume(100, 0.05) if each.error() is None]
        now = sorted(each.partition for each in consumer.assignment())
        if now != owned:
            print("owns", *now, flush=True)
            owned = now
        for each in records:
            value: Any = each.value()
            print("read", each.partition(), value.decode(), flush=True)
        if records:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                print("failed", error, flush=True)
    consumer.close()


main()
