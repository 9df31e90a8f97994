"""What became of ideas in the papers on transactions: a written part of docs/COMPATIBILITY.md."""

from typing import NamedTuple


class Idea(NamedTuple):
    """Something that the papers on transactions propose for later, or that a later one undid."""

    idea: str
    paper: str
    became: str


IDEAS = (
    Idea(
        "Producer heartbeat",
        "KIP-98, future work",
        "Nobody built it; the protocol has no message for it. A transactional id that is idle for "
        "`transactional.id.expiration.ms` is forgotten, as in Kafka, and its producer begins again "
        "with InitProducerId. The newcomer always wins over the older producer of its id.",
    ),
    Idea(
        "Events of a transaction for producer interceptors",
        "KIP-98, future work",
        "The client has no interceptors. What the idea was for, to see a transaction begin and end "
        "also where the client fails, the coordinator tells: `barnabas transactions why`.",
    ),
    Idea(
        "A tool after correlated hard failures",
        "KIP-98, future work",
        "`barnabas transactions repair`: see transactions-troubleshooting.md.",
    ),
    Idea(
        "Producer ids bound to their transactional id by a message authentication code",
        "KIP-98, future work",
        "Not built: the record batch has no room for it. A partition takes records of an open "
        "transaction only under the transactional id that the coordinator confirmed for it. This "
        "stops accidents and guesses, not somebody who knows the transactional id too: that takes "
        "the access control that comes later.",
    ),
    Idea(
        "Delivery in the order of commits",
        "KIP-98, rejected for then",
        "Not built. Records are delivered in the order of offsets, up to the last stable offset: "
        "one number says how far a reader is.",
    ),
    Idea(
        "Message formats v0 and v1 beside transactions",
        "KIP-98, superseded by KIP-724",
        "Neither is written nor converted to, as in Kafka 4.0 and later: Produce is served from v3 "
        "and Fetch from v4. Errors for topics of an older format cannot occur.",
    ),
    Idea(
        "A request to the coordinator for each partition when it is met",
        "KIP-98, superseded by KIP-890 and KIP-609",
        "Older clients still send it. From Produce v12 on the leader adds the partition; a client "
        "that knows its partitions and group registers them in one request, in tagged fields and "
        "under the feature `barnabas.transaction.registration`.",
    ),
    Idea(
        "Transactions that another coordinator ends (two-phase commit)",
        "KIP-939",
        "Later. InitProducerId ends at v5, and no transaction is exempt from its timeout.",
    ),
)
