"""What client libraries do by themselves: a written part of docs/COMPATIBILITY.md."""

from typing import NamedTuple


class Quirk(NamedTuple):
    """What a client library does by itself, whatever the broker, and what helps."""

    client: str
    what: str
    helps: str


QUIRKS = (
    Quirk(
        "kafka-python 3.0.12",
        "A transactional request is forgotten for ever if connecting to its coordinator fails "
        "while it waits, as while a broker restarts.",
        "A timeout around commit and send_offsets, and a new producer with the same id after it.",
    ),
    Quirk(
        "kafka-python 3.0.12",
        "Polled for 20 ms at a time it never gets into a group on a busy machine.",
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
        "coordinator has died and is in the metadata no more.",
        "A thread of its own for the call, and a new producer with the same id when it is late.",
    ),
    Quirk(
        "librdkafka 2.16",
        "An abort stands still until `message.timeout.ms`, by default a transaction's whole "
        "timeout, where a leader has just moved: what it sends back is queued again after the "
        "abort's purge.",
        "`message.timeout.ms` of some seconds.",
    ),
    Quirk(
        "franz-go 1.22",
        "A consumer that dials a dead broker while its coordinator moves forgets its member id, "
        "and joins as another: the group stands still until the session of the first one ends.",
        "`kgo.InstanceID`, or a short `kgo.SessionTimeout`.",
    ),
    Quirk(
        "Kafka's AdminClient 3.9, and Spark's connector with it",
        "`listOffsets` that has begun to ask a leader goes on asking it when it is dead: a "
        "micro-batch stands still for a minute.",
        "`default.api.timeout.ms` of some seconds; Spark tries again.",
    ),
    Quirk(
        "all of the older transaction protocol",
        "An epoch has many transactions: an EndTxn that was held up on the way may end the next "
        "one (KAFKA-17754).",
        "Barnabas refuses what comes on an older connection than one its producer has used since; "
        "what overtakes on one connection, and TxnOffsetCommit v0-2, which names no member, stay "
        "open.",
    ),
)
