"""What Barnabas leaves out of Apache Kafka 4.3, and what it does otherwise: a written part of
docs/COMPATIBILITY.md."""

from typing import NamedTuple


class Missing(NamedTuple):
    """APIs of Kafka 4.3 that are not served, by key, and why."""

    apis: dict[int, str]
    why: str


class Difference(NamedTuple):
    """Something that a client or an operator can notice."""

    about: str
    here: str
    kafka: str
    why: str


MISSING = (
    Missing(
        {
            17: "SaslHandshake",
            29: "DescribeAcls",
            30: "CreateAcls",
            31: "DeleteAcls",
            36: "SaslAuthenticate",
            38: "CreateDelegationToken",
            39: "RenewDelegationToken",
            40: "ExpireDelegationToken",
            41: "DescribeDelegationToken",
            48: "DescribeClientQuotas",
            49: "AlterClientQuotas",
            50: "DescribeUserScramCredentials",
            51: "AlterUserScramCredentials",
        },
        "Security and quotas come later. A configuration that asks for security is refused; keys "
        "of quotas have no effect, and the warning at the start names them.",
    ),
    Missing(
        {68: "ConsumerGroupHeartbeat", 69: "ConsumerGroupDescribe"},
        "The consumer protocol of KIP-848 comes later; clients use the classic one by default.",
    ),
    Missing(
        {
            76: "ShareGroupHeartbeat",
            77: "ShareGroupDescribe",
            78: "ShareFetch",
            79: "ShareAcknowledge",
            83: "InitializeShareGroupState",
            84: "ReadShareGroupState",
            85: "WriteShareGroupState",
            86: "DeleteShareGroupState",
            87: "ReadShareGroupStateSummary",
            90: "DescribeShareGroupOffsets",
            91: "AlterShareGroupOffsets",
            92: "DeleteShareGroupOffsets",
        },
        "Share groups (KIP-932) come later.",
    ),
    Missing(
        {88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe"},
        "Streams groups (KIP-1071) are not planned; Kafka Streams works on classic groups.",
    ),
    Missing(
        {
            55: "DescribeQuorum",
            64: "UnregisterBroker",
            80: "AddRaftVoter",
            81: "RemoveRaftVoter",
        },
        "They administer KRaft, which Barnabas does not have.",
    ),
    Missing(
        {71: "GetTelemetrySubscriptions", 72: "PushTelemetry"},
        "Clients push metrics only to brokers that announce it, and no receiver is here (KIP-714).",
    ),
)

DIFFERENCES = (
    Difference(
        "Metadata",
        "One broker keeps them in a journal of its own, several in ZooKeeper (3.8 or newer), with "
        "the nodes of Kafka 3.9 and those of its zookeeper.* keys that are below; other "
        "zookeeper.ssl.* keys are refused. Certificates are PEM files, and the digest's user and "
        "password stand in zookeeper.digest.file.",
        "In a log of their own (KRaft). Until 3.9: ZooKeeper, with a JAAS file.",
        "Several implementations of the same small port, and nothing to run beside one broker.",
    ),
    Difference(
        "Listeners of a cluster",
        "A broker of a cluster has two at least: inter.broker.listener.name is set, and names one "
        "that clients are not told of. Otherwise it does not start.",
        "One listener can be for clients and brokers.",
        "What only brokers may say is served there alone, and without security the listener is all "
        "that tells them from clients.",
    ),
    Difference(
        "Produce: timestamps",
        "The limits of message.timestamp.before.max.ms and .after.max.ms are held against the "
        "first and the largest timestamp of a batch, as its header gives them.",
        "Every record is looked at.",
        "A batch stays compressed from socket to disk. Looking at each record would cost more "
        "than everything else that is done to it.",
    ),
    Difference(
        "Produce: internal topics",
        "No client may write to them.",
        "The client id `__admin_client` may.",
        "A client chooses its client id.",
    ),
    Difference(
        "Produce: whose transaction it is",
        "A partition remembers which transactional id its open transaction was verified for; "
        "another one that names the same producer id gets INVALID_PRODUCER_ID_MAPPING. After a "
        "restart the coordinator is asked again.",
        "Once a transaction is open in a partition, its producer id and epoch are enough.",
        "A producer id can be guessed, a record in a stranger's transaction cannot be taken back.",
    ),
    Difference(
        "Produce: a transaction that the older protocol opened",
        "Takes nothing from Produce v12 and later: the coordinator is asked, and the batch belongs "
        "to the next transaction.",
        "Clients are to take another epoch before they change the protocol (KAFKA-18227).",
        "One that does not would write into a transaction that is being ended.",
    ),
    Difference(
        "WriteTxnMarkers between brokers",
        "What comes over an older connection than the coordinator's broker has used since is not "
        "written.",
        "It is, and may end the next transaction of a producer of the older protocol.",
        "A request that was held up has long been sent again.",
    ),
    Difference(
        "`__transaction_state` in a transaction",
        "TOPIC_AUTHORIZATION_FAILED from AddPartitionsToTxn of brokers (v4 and v5) and "
        "WriteTxnMarkers too.",
        "Whoever may act as a broker can add it, and write markers into it.",
        "No transaction writes there: a marker would make the log unreadable to its coordinator.",
    ),
    Difference(
        "Markers and max.message.bytes",
        "A marker is written whatever the topic's limit.",
        "A limit below the size of a marker, 78 bytes, keeps transactions in PrepareCommit.",
        "What is decided must end.",
    ),
    Difference(
        "Markers of a topic that came back with fewer partitions",
        "A partition that the metadata store does not have needs no marker.",
        "The same, as far as the broker's own view of the metadata says so.",
        "Only the store can tell what is gone from what is not known yet.",
    ),
    Difference(
        "`replica.fetch.backoff.ms`",
        "The longest pause after an error of a partition; the first is a sixteenth of it.",
        "Every pause has this length.",
        "Most of these errors are over as soon as a leader has heard that it leads: new topics and "
        "leaders take acks=all that much sooner.",
    ),
    Difference(
        "In-sync followers that go",
        "A follower whose connection is closed from its side, and who does not fetch again within "
        "500 ms, is proposed to leave the in-sync set.",
        "It leaves when replica.lag.time.max.ms is over or the controller has seen it go.",
        "After kill -9 of a follower acks=all goes on in half a second.",
    ),
    Difference(
        "Elections: brokers that were not shut down cleanly",
        "A broker's registration says how its last run ended. Unless it was closed cleanly it "
        "leaves every in-sync set that has another member, before any election. The last member "
        "leads again if its machine has not rebooted or its topic flushes first "
        "(flush.messages=1), and no directory of it is new or gone; else only an unclean election "
        "makes it the leader, and the partition's node says so (`doubtful`).",
        "With ZooKeeper it stayed in the sets and led again. KRaft keeps eligible leaders beside "
        "the in-sync set (KIP-966).",
        "What was acknowledged to several replicas is not lost to one machine's reboot.",
    ),
    Difference(
        "Elections: all brokers away at once",
        "A controller that comes into office and finds nobody registered who was, waits "
        "zookeeper.session.timeout.ms before it moves a leader.",
        "With ZooKeeper: leaders moved to whoever registered first.",
        "It is the metadata store that was away, and the brokers come back.",
    ),
    Difference(
        "High watermark of parked followers",
        "It reaches a follower whose Fetch is parked after 10 ms, if no records do before.",
        "It waits for replica.fetch.wait.max.ms, if no records come before.",
        "A replica that is elected, or read from (KIP-392), knows then what is committed.",
    ),
    Difference(
        "replica.selector.class",
        "LeaderSelector or RackAwareReplicaSelector of org.apache.kafka.common.replica.",
        "Any class on the class path.",
        "Java classes cannot be loaded here.",
    ),
    Difference(
        "ApiVersions: features",
        "transaction.version, and `barnabas.transaction.registration`: KIP-609 is understood.",
        "metadata.version, kraft.version, group.version, share.version and others are told too.",
        "They are levels of KRaft and of what is not served. Clients ignore features that they do "
        "not know.",
    ),
    Difference(
        "UpdateFeatures: features",
        "transaction.version and `barnabas.transaction.registration` can be changed. A release "
        "as a whole (`kafka-features.sh upgrade --release-version`) cannot be asked for.",
        "Every feature of a release can, metadata.version among them.",
        "A release names levels of KRaft and of what is not served, and all of them or none are "
        "set.",
    ),
    Difference(
        "DescribeTransactions: what happened of late",
        "Tagged field 10000 of the request asks for it; tags 10000 to 10002 of each transaction "
        "tell events, time left and the client's address.",
        "No such fields.",
        "`barnabas transactions why`. Who does not ask gets none, and who does not know them skips "
        "them.",
    ),
    Difference(
        "Internal topics: asking creates them",
        "`__consumer_offsets` and `__transaction_state`; `__share_group_state` stays unknown, and "
        "nobody may create it or write to it.",
        "All three are created when Metadata asks for them.",
        "No coordinator here keeps the third yet.",
    ),
    Difference(
        "OffsetFetch before v7: open transactions",
        "COORDINATOR_LOAD_IN_PROGRESS while a transaction is open that has committed an offset of "
        "a partition that is asked for; `group.unstable.offsets.block.old.clients` switches it "
        "off.",
        "The offset from before the transaction.",
        "These clients (aiokafka) cannot ask for stable offsets (KIP-447). One that took over on "
        "the old offset would do the work of a transaction again that may yet be committed. They "
        "know this error, and ask again.",
    ),
    Difference(
        "OffsetFetch v2 to v7: errors of a group",
        "Told of the group and of every partition that was asked for.",
        "Told of the group; no partitions are listed.",
        "aiokafka looks at partitions only, and takes a group that is being loaded for one that "
        "never committed.",
    ),
    Difference(
        "Internal topics",
        "One replica and min.insync.replicas 1 while the broker is alone with its embedded "
        "metadata.",
        "Creation waits for as many brokers as offsets.topic.replication.factor, 3, asks for.",
        "One broker must work without a setting. In a cluster the factor is never smaller than "
        "asked for.",
    ),
    Difference(
        "Broker keys",
        "DescribeConfigs lists the keys below and AlterConfigs takes no other.",
        "Every key of KRaft is listed, and unknown ones are stored.",
        "A key that is accepted has its effect.",
    ),
    Difference(
        "Broker keys: listeners",
        "listeners, advertised.listeners and listener.security.protocol.map are read at start-up.",
        "They can be altered for one broker while it runs.",
        "Sockets are opened once.",
    ),
    Difference(
        "Broker keys: node.id",
        "One key, listed as broker.id; both names are taken from files.",
        "Two keys that must agree.",
        "They mean the same.",
    ),
    Difference(
        "flush.ms and log.flush.interval.ms",
        "They hold by themselves, to the second; log.flush.scheduler.interval.ms makes it finer.",
        "Nothing is flushed by time unless log.flush.scheduler.interval.ms is set too.",
        "A key that is accepted has its effect.",
    ),
    Difference(
        "queued.max.request.bytes",
        "128 MiB by default.",
        "No limit by default.",
        "A limit on every queue: many connections must not take all memory.",
    ),
    Difference(
        "Group keys",
        "None is taken.",
        "Keys for consumer, share and streams groups.",
        "They have no effect on classic groups.",
    ),
    Difference(
        "Reassignments: /admin/reassign_partitions",
        "Nothing comes of the node. AlterPartitionReassignments moves partitions, and what moves "
        "stands in /brokers/topics, as in Kafka.",
        "Before 4.0 a controller took the node for an order of its older tool.",
        "The tool has not used it since Kafka 2.6.",
    ),
    Difference(
        "AlterReplicaLogDirs: a crash at its end",
        "Of two directories of a replica the start takes the one that was written last.",
        "The start fails until somebody has deleted one of the two.",
        "Leader epochs and ends of the logs tell which one it is.",
    ),
    Difference(
        "Reassignments to a broker that is down",
        "INVALID_REPLICA_ASSIGNMENT, as for a broker that does not exist.",
        "It begins, and waits for the broker. With ZooKeeper it was refused.",
        "The metadata know the brokers that are there.",
    ),
    Difference(
        "Metadata of a partition without a leader",
        "Its isr_nodes name the last replica that was in sync, and eligible_leader_replicas none.",
        "Where eligible leaders are kept (KIP-966) they name it, and isr_nodes none.",
        "It is the in-sync set that stands in the partition's node, as with ZooKeeper.",
    ),
    Difference(
        "min.insync.replicas while a partition is reassigned",
        "It counts no more replicas than there are without those that are being added.",
        "It counts all of them: a partition of one replica takes no acks=all until its new "
        "replicas have caught up, where min.insync.replicas is 2.",
        "A reassignment keeps nobody from writing.",
    ),
    Difference(
        "auto.leader.rebalance.enable",
        "leader.imbalance.per.broker.percentage holds for each broker, as in Kafka before 4.0; "
        "nothing returns while partitions are reassigned.",
        "The controller looks at all partitions and at no percentage.",
        "A key that is accepted has its effect.",
    ),
    Difference(
        "Producer snapshots",
        "Beside each `.snapshot`, which is Kafka's, lies a `.window` file with the four batches "
        "per producer that Kafka's format has no room for.",
        "After a restart only the last batch of a producer is known.",
        "A retry of one of the other four is still recognised after a crash.",
    ),
    Difference(
        "CreatePartitions: very many at once",
        "More than 10,000 new partitions in one request are refused with POLICY_VIOLATION, as by "
        "CreateTopics.",
        "CreateTopics alone has the limit.",
        "No request may exhaust the controller's memory.",
    ),
    Difference(
        "Strings that are no UTF-8",
        "The connection is closed, as for every body that cannot be decoded; a client id is shown "
        "as far as it is text.",
        "Each wrong byte is taken for U+FFFD.",
        "Two groups or topics must not become one.",
    ),
    Difference(
        "Produce: records that are null",
        "INVALID_RECORD.",
        "The request is never answered.",
        "A client that is told does not wait.",
    ),
    Difference(
        "AlterConfigs: a resource that is named twice",
        "INVALID_REQUEST.",
        "The request is never answered.",
        "A client that is told does not wait.",
    ),
    Difference(
        "Texts",
        "Error messages and the documentation of configuration keys are our own words, but for "
        "those of configuration errors that tools show.",
        "Kafka's.",
        "They are for people.",
    ),
)
