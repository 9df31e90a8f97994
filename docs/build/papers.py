"""The ideas in the KIPs on transactions: a written part of docs/COMPATIBILITY.md."""

from typing import NamedTuple


class Idea(NamedTuple):
    """An idea that a KIP on transactions proposes for later, or that a later KIP replaced."""

    idea: str
    paper: str
    became: str


IDEAS = (
    Idea(
        "Producer heartbeat",
        "KIP-98, future work",
        "Not built by any broker; the protocol has no message for it. As in Kafka, a transactional "
        "id that is idle for `transactional.id.expiration.ms` is deleted, and its producer begins "
        "again with InitProducerId. A new producer always wins over the older one of its id.",
    ),
    Idea(
        "Events of a transaction for producer interceptors",
        "KIP-98, future work",
        "The client has no interceptors. The purpose of the idea is to see a transaction begin "
        "and end even if the client fails: `barnabas transactions why` gets this from the "
        "coordinator.",
    ),
    Idea(
        "A tool after correlated hard failures",
        "KIP-98, future work",
        "`barnabas transactions repair`: see transactions-troubleshooting.md.",
    ),
    Idea(
        "Producer ids bound to their transactional id by a message authentication code",
        "KIP-98, future work",
        "Not built: the record batch has no room for it. A partition accepts records of an open "
        "transaction only under the transactional id that the coordinator confirmed for it. This "
        "stops accidents and guesses, but no attacker who also knows the transactional id: that "
        "needs the access control that comes later.",
    ),
    Idea(
        "Delivery in the order of commits",
        "KIP-98, rejected for then",
        "Not built. Records are delivered in the order of offsets, up to the last stable offset: "
        "one number gives a consumer's position.",
    ),
    Idea(
        "Message formats v0 and v1 beside transactions",
        "KIP-98, superseded by KIP-724",
        "Neither is written, and no batch is converted to them, as in Kafka 4.0 and later: Produce "
        "is served from v3 and Fetch from v4. Errors for topics of an older format cannot occur.",
    ),
    Idea(
        "A request to the coordinator for each new partition of a transaction",
        "KIP-98, superseded by KIP-890 and KIP-609",
        "Older clients still send it. From Produce v12 on the leader adds the partition. A client "
        "that knows its partitions and group registers them in one request, in tagged fields and "
        "under the feature `barnabas.transaction.registration`.",
    ),
    Idea(
        "Transactions that another coordinator ends (two-phase commit)",
        "KIP-939",
        "Served where `transaction.two.phase.commit.enable` is on: InitProducerId v6 with "
        "Enable2Pc and KeepPreparedTxn, under `transaction.version` 2. See the life of a kept "
        "transaction in ARCHITECTURE.md. Kafka 4.4 refuses KeepPreparedTxn.",
    ),
)
