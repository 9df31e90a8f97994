"""The surprising behaviour of client libraries: a written part of docs/COMPATIBILITY.md."""

from typing import NamedTuple


class Quirk(NamedTuple):
    """Behaviour of a client library that no broker can change, and the workaround."""

    client: str
    what: str
    helps: str


QUIRKS = (
    Quirk(
        "kafka-python 3.0.12",
        "It drops a transactional request for ever if the connection to the coordinator fails "
        "while the request waits, as during a broker's restart.",
        "A timeout around commit and send_offsets, and then a new producer with the same id.",
    ),
    Quirk(
        "kafka-python 3.0.12",
        "On a busy machine it never joins a group if it is polled for 20 ms at a time.",
        "Polls of some hundred ms.",
    ),
    Quirk(
        "librdkafka 2.16",
        "`send_offsets_to_transaction` can hang after every broker of its list was down.",
        "`metadata.recovery.strategy=none`.",
    ),
    Quirk(
        "librdkafka 2.16",
        "`send_offsets_to_transaction` never returns, whatever its timeout, after the group's "
        "coordinator has crashed and has left the metadata.",
        "A thread of its own for the call, and a new producer with the same id if it is late.",
    ),
    Quirk(
        "librdkafka 2.16",
        "If a leader has just moved, an abort takes until `message.timeout.ms`, by default a "
        "transaction's whole timeout: messages that come back are queued again after the purge of "
        "the abort.",
        "`message.timeout.ms` of some seconds.",
    ),
    Quirk(
        "librdkafka 2.16",
        "A batch of its idempotent producer whose first record expires in flight "
        "(`message.timeout.ms`) is sent again without that record, under a raised epoch. If the "
        "batch had been written, its other records are there twice and acknowledged, and the "
        "first one is there although it is reported as failed; on Kafka as here.",
        "`message.timeout.ms` above the longest outage (its default is 5 minutes), or "
        "transactions, which abort.",
    ),
    Quirk(
        "librdkafka 2.16",
        "With `group.protocol=consumer` a static member (`group.instance.id`) that was killed and "
        "starts again gets a fatal error until the session of the dead one is over (45 s), and "
        "never joins after it; on Kafka as here. The classic protocol lets it in at once. Kafka's "
        "Java client 4.4 ends in UnreleasedInstanceIdException.",
        "A supervisor that starts the process again for as long as a session takes.",
    ),
    Quirk(
        "librdkafka 2.16",
        "With `group.protocol=consumer` in a group that classic members hold, it ends in a fatal "
        "error, `The group id does not exist`, and never joins after them; on Kafka with "
        "`group.consumer.migration.policy=disabled` as here.",
        "A start when all classic members have left.",
    ),
    Quirk(
        "Kafka's Java client 4.4",
        "`subscribe(new SubscriptionPattern(...))` includes internal topics that match, whatever "
        "`exclude.internal.topics` says: the broker resolves it, on Kafka as here. Its member then "
        "reads its own commits. `subscribe(Pattern)` leaves them out.",
        "An expression that does not match them, as `[^_].*`.",
    ),
    Quirk(
        "Kafka Connect 4.4",
        "With `consumer.override.group.protocol=consumer` a sink task ends in "
        "UnsupportedOperationException when it gives up partitions, if it has read nothing since "
        "its last periodic commit; on Kafka as here. An idle sink does not survive another member.",
        "The classic protocol.",
    ),
    Quirk(
        "Kafka Streams 4.4",
        "It ignores `consumer.group.protocol=consumer`, with a line in its log, and joins by the "
        "classic protocol; `group.protocol` takes `classic` and `streams` alone.",
        "None is needed.",
    ),
    Quirk(
        "@platformatic/kafka 2.12",
        "With `groupProtocol: 'consumer'` a member that was removed from its group, as after a "
        "pause longer than its session, does not join again. It reads the partitions that it had, "
        "next to their new owner; its commits fail, which does not always end its stream; on Kafka "
        "as here.",
        "Commits by the member, and a new consumer when one fails, or the classic protocol.",
    ),
    Quirk(
        "librdkafka before 2.6.1",
        "With SCRAM it puts its own nonce before the full one, and cannot log in: Apache Kafka "
        "refuses it too since CVE-2024-56128 (3.7.2).",
        "An update. The broker's log names this cause.",
    ),
    Quirk(
        "franz-go 1.22",
        "A consumer that dials a dead broker while its coordinator moves forgets its member id "
        "and joins as another member: the group is stuck until the session of the first one ends.",
        "`kgo.InstanceID`, or a short `kgo.SessionTimeout`.",
    ),
    Quirk(
        "aiokafka 0.14",
        "It does not renew its session (KIP-368): at the end of `connections.max.reauth.ms` or of "
        "its token the connection closes, and a call fails or is repeated on a new connection.",
        "None is needed for producers and consumers, which repeat the call.",
    ),
    Quirk(
        "franz-go 1.22",
        "It renews a session 1 s before its end, so sessions of up to 2 s are renewed within 1 s "
        "of another, which brokers refuse (as Kafka does): calls end with ILLEGAL_SASL_STATE.",
        "`connections.max.reauth.ms` of 3 s or more.",
    ),
    Quirk(
        "Kafka's AdminClient 3.9, and Spark's connector with it",
        "`listOffsets` that has begun to ask a leader goes on asking it after the leader's crash: "
        "a micro-batch is stuck for a minute.",
        "`default.api.timeout.ms` of some seconds; Spark tries again.",
    ),
    Quirk(
        "PySpark 4.3 (Py4J 0.10.9.9)",
        "Its server for functions of Python in a driver (`foreachBatch`, listeners) waits by "
        "`select`: if the process has more than a thousand open files when the first such query "
        "starts, the query waits for ever. A driver of its own has few; a test with brokers in its "
        "process may have many.",
        "Brokers in processes of their own (`Cluster(processes=True)`).",
    ),
    Quirk(
        "all of the older transaction protocol",
        "An epoch has many transactions: a delayed EndTxn may end the next one (KAFKA-17754).",
        "Barnabas refuses an EndTxn over an older connection than one that its producer has used "
        "since. Two cases stay open: requests that overtake each other on one connection, and "
        "TxnOffsetCommit v0-2, which names no member.",
    ),
)
