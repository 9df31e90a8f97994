"""The differences from Apache Kafka 4.4: the APIs that are missing, and other behaviour.

They are a written part of docs/COMPATIBILITY.md.
"""

from typing import NamedTuple


class Missing(NamedTuple):
    """APIs of Kafka 4.4 that are not served, by key, and the reason."""

    apis: dict[int, str]
    why: str


class Difference(NamedTuple):
    """A difference that a client or an operator can notice."""

    about: str
    barnabas: str
    kafka: str
    why: str


MISSING = (
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
        {
            88: "StreamsGroupHeartbeat",
            89: "StreamsGroupDescribe",
            93: "StreamsGroupTopologyDescriptionUpdate",
        },
        "Streams groups (KIP-1071) are not planned; Kafka Streams works on classic groups.",
    ),
    Missing(
        {
            55: "DescribeQuorum",
            64: "UnregisterBroker",
            80: "AddRaftVoter",
            81: "RemoveRaftVoter",
            94: "UnregisterController",
        },
        "They administer KRaft, which Barnabas does not have.",
    ),
    Missing(
        {71: "GetTelemetrySubscriptions", 72: "PushTelemetry"},
        "Clients push metrics only to brokers that announce these APIs, and we do not (KIP-714).",
    ),
)

DIFFERENCES = (
    Difference(
        "Quotas of clients",
        "`request_percentage` is of the time of one event loop, so that 100 is no limit. A "
        "connection beyond `connection_creation_rate` of its address is closed at once; an ip "
        "entity is an address, not the name of a host. A batch larger than `consumer_byte_rate` "
        "allows in all windows is sent when the client owes nothing. A rate of new connections is "
        "measured when they are admitted, and `max.connection.creation.rate` is at least 1.",
        "The percentage is of one thread. The connection waits before it is closed. Names of "
        "hosts are looked up. Such a batch is never sent.",
        "A broker is one event loop.",
    ),
    Difference(
        "Producer ids of a principal",
        "A principal brings at most `max.producer.ids.per.principal` (500,000) new producer ids to "
        "a broker at once, and as many again in each `producer.id.expiration.ms`: given out by "
        "InitProducerId, for new transactional ids too, or new to a partition. Beyond it "
        "InitProducerId and Produce answer POLICY_VIOLATION; ids that are known go on. Super users "
        "and brokers have no limit.",
        "No limit: every id takes memory until it expires.",
        "Clients make ids up, or ask for one with each record (KIP-936 is not adopted). "
        "POLICY_VIOLATION is told to the application; THROTTLING_QUOTA_EXCEEDED would be repeated.",
    ),
    Difference(
        "Principals of transactions",
        "With an authorizer, a transactional producer id belongs to the principal of its latest "
        "InitProducerId: others that may write under the same transactional id get "
        "INVALID_PRODUCER_ID_MAPPING, except super users. One of a super user belongs to no "
        "principal. The principal is in a tagged field of `__transaction_state`, whose records "
        "then have version 1 also below transaction.version 1.",
        "Every principal with Write on a transactional id may go on with its producer id.",
        "It closes the gap that KIP-98 leaves: a producer id tells nothing about its sender.",
    ),
    Difference(
        "Rights of requests that wait",
        "Fetch, JoinGroup and SyncGroup ask for their rights again before they are answered.",
        "Rights are asked for once, when the request arrives.",
        "A change of rules is in force within a second; a Fetch may wait for minutes.",
    ),
    Difference(
        "super.users or allow.everyone.if.no.acl.found without authorizer.class.name",
        "The broker does not start.",
        "The keys have no effect.",
        "The configuration asks for rights, and every client would have all of them.",
    ),
    Difference(
        "AlterConfigs and IncrementalAlterConfigs without rights",
        "The refusal comes before other errors of the resource.",
        "Repeated resources, null values and other brokers' ids are refused first.",
        "A client without rights learns nothing about the resource.",
    ),
    Difference(
        "Metadata",
        "One broker keeps its metadata in a journal of its own; several brokers keep them in "
        "ZooKeeper (3.8 or newer), with the nodes of Kafka 3.9 and those of its zookeeper.* keys "
        "that configuration.md lists. Other zookeeper.ssl.* keys are refused. Certificates are PEM "
        "files; the digest's user and password are in zookeeper.digest.file.",
        "In a log of their own (KRaft). Until 3.9: ZooKeeper, with a JAAS file.",
        "Several implementations of one small interface, and nothing to run beside one broker.",
    ),
    Difference(
        "Listeners of a cluster",
        "The listener of inter.broker.listener.name is for brokers alone, and a broker of a "
        "cluster needs another one for clients. With an authorizer every request on it needs "
        "ClusterAction, and nothing else; and if it authenticates clients, it may be the only one "
        "and serve them too. Then a client is cut off until the broker has its first metadata.",
        "One listener can be for clients and brokers. Requests of brokers need ClusterAction if "
        "there is an authorizer.",
        "Without rights nothing else tells brokers from clients.",
    ),
    Difference(
        "TLS: key stores",
        "PEM and PKCS12 (which needs the extra `security`). A JKS file is refused with the command "
        "that converts it. A PEM key store may have no password. Changed files are read again "
        "within 10 s, and after SIGHUP.",
        "JKS, PKCS12 and PEM. Files are read again when AlterConfigs names them.",
        "JKS is a format of Java. Certificates are often renewed in place.",
    ),
    Difference(
        "Passwords in the metadata",
        "With password.encoder.secret, passwords that AlterConfigs sets are encrypted, in the "
        "format of Kafka 3.9 (AES in CBC or GCM; needs the extra `security`). Without it they are "
        "refused by brokers on ZooKeeper, and stored in the clear by a broker that keeps its own "
        "metadata. After a change of the secret the broker encrypts them again at its start, also "
        "those that were in the clear.",
        "In the clear (KRaft). Until 3.9, in ZooKeeper, encrypted.",
        "The nodes are those of 3.9, and so are its keys.",
    ),
    Difference(
        "AlterUserScramCredentials: an empty salt",
        "UNACCEPTABLE_CREDENTIAL",
        "It is stored.",
        "No client could log in with it.",
    ),
    Difference(
        "TLS: versions and ciphers",
        "TLS 1.2 and 1.3. ssl.cipher.suites names all three suites of TLS 1.3 or none, which "
        "disables it. ssl.provider, ssl.engine.factory.class and the other keys of Java's classes "
        "are refused.",
        "All versions of Java's, and any subset of suites.",
        "Python's ssl has no choice among the suites of TLS 1.3, and no classes of Java.",
    ),
    Difference(
        "TLS: revocation lists",
        "`ssl.crl.location` names a PEM file of revocation lists. They are checked for the "
        "certificate of the peer and, if the trust store has root authorities alone and each of "
        "them has a list, for those of the authorities between them. A list that is missing or out "
        "of date refuses the peer.",
        "Properties of the JVM.",
        "No key of Kafka says it.",
    ),
    Difference(
        "SASL: mechanisms",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. A listener that offers another "
        "mechanism does not start; GSSAPI is the default of sasl.enabled.mechanisms, so the key "
        "has to be set, and sasl.mechanism.inter.broker.protocol too if brokers use SASL among "
        "themselves.",
        "These and GSSAPI.",
        "GSSAPI needs a library of C and a KDC.",
    ),
    Difference(
        "SASL: AlterConfigs",
        "`sasl.jaas.config`, `sasl.enabled.mechanisms` and "
        "`sasl.mechanism.inter.broker.protocol` of one broker, and every key of SASL with the "
        "prefix of a listener, take effect at the next login. Values with which the listener or "
        "the broker's own login could not work are refused, and nothing is stored.",
        "The same keys are stored, unchecked, and take effect when the broker starts again.",
        "Passwords are changed while brokers run.",
    ),
    Difference(
        "SASL: messages of SCRAM",
        "An unknown user gets a salt, always the same, and fails at the last message as a wrong "
        "password does; the brokers share the secret of these salts in `/scram_stand_ins`. The "
        "channel binding has to repeat the first message's header, attributes come once and in "
        "order, `m=` is refused, a message has at most 16 KB and 33 attributes. The flag `y` is "
        "taken, and so are all characters of names.",
        "An unknown user is refused at the first message. Some malformed messages are taken.",
        "A client that does not know the password learns nothing about users (RFC 5802, 7).",
    ),
    Difference(
        "AlterConfigs, IncrementalAlterConfigs and CreateTopics: size of a configuration",
        "The keys and values of one resource have at most 512 KB, beyond which they answer "
        "INVALID_CONFIG.",
        "In KRaft a value has at most 32 KB, as every text of a request. No limit of the keys "
        "together.",
        "It fits into a node of ZooKeeper, and is judged in one go.",
    ),
    Difference(
        "CreateAcls and DeleteAcls: number of rules",
        "All rules together have at most 4 MB: a rule counts with 128 bytes, its principal and its "
        "host, and each name of a resource once; so some 25,000 rules. Beyond it CreateAcls "
        "answers POLICY_VIOLATION. So does DeleteAcls whose filters match more than 100,000 rules "
        "together. Rules that Kafka's tools have written to ZooKeeper are in force beyond that.",
        "In KRaft one request changes at most 10,000 rules. No limit of all of them.",
        "Each broker has all rules in memory.",
    ),
    Difference(
        "Delegation tokens",
        "No client logs in with a token that has expired. A token that another broker has just "
        "created is found by its HMAC at once. All tokens together have at most 32 MB in the "
        "metadata, and those that one principal has requested 4 MB (some 10,000), beyond which "
        "CreateDelegationToken answers POLICY_VIOLATION; one token has at most 64 KB, beyond which "
        "it answers INVALID_REQUEST.",
        "A token that has expired lets clients in until it is deleted. A broker answers "
        "DELEGATION_TOKEN_NOT_FOUND until it has heard of a token. No limits.",
        "An end is an end; a client with a name cannot fill the metadata, nor use up the tokens of "
        "others.",
    ),
    Difference(
        "SASL: users of PLAIN",
        "With the login module of SCRAM they are the users of SCRAM, so that no password is "
        "stored. `sasl.jaas.config` without a prefix is for all listeners. An option that stands "
        "twice in it is refused. A message has at most 16 KB.",
        "The key counts only with the prefix of a listener and a mechanism; there is a JAAS file "
        "too. The last of equal options counts.",
        "A key that is silently ignored leaves a listener without users.",
    ),
    Difference(
        "SASL: tokens of OAUTHBEARER",
        "Every token needs a signature of RSA, EC or Ed25519 by a key of "
        "`sasl.oauthbearer.jwks.endpoint.url` (`https://` or `file:/`). "
        "sasl.server.callback.handler.class is refused. A token issued in the future is refused, "
        "and after a refusal no second one is taken on the connection. A message has 128 KB at "
        "most, with 61 extensions, and the header 4 KB. Redirections are not followed. A session "
        "that begins within the clock skew after `exp` has a lifetime of 1 ms. The extra "
        "`security` is needed. Where no audience or issuer is expected, and "
        "`sasl.oauthbearer.allow.unverified.audience` or `.issuer` is unset, the listener starts "
        "with a warning until the next release.",
        "Without sasl.server.callback.handler.class unsigned tokens are accepted. `http://` is, "
        "and the URL has to be in a property of the JVM. The client of such a session is told "
        "0 ms, no end, and is closed at its next request. Since 4.4 the two keys are false by "
        "default, and such a listener does not start.",
        "An unsigned token proves nothing.",
    ),
    Difference(
        "SASL: tokens of clients and of brokers",
        "The logins of a client share a token in the first 80 % of its lifetime, and fetch another "
        "one after a broker has refused it. The grant is `client_credentials`. A token endpoint "
        "that is silent for 10 s counts as failed, and so does one that takes as long as both "
        "timeouts together.",
        "A task renews the token, by the keys sasl.login.refresh.*. There is the grant "
        "`jwt-bearer` too. The URL has to be in a property of the JVM, and timeouts have no "
        "default.",
        "A token that no login needs is not fetched.",
    ),
    Difference(
        "SASL: before authentication",
        "A connection is closed if its client has not authenticated in "
        "`connections.max.unauthenticated.ms` (15 s). SaslAuthenticate before SaslHandshake is "
        "answered with ILLEGAL_SASL_STATE. An ApiVersions request after SaslHandshake closes the "
        "connection without an answer, and so does every other request before authentication. "
        "All of them together have a quarter of the connections (max.connections, or what the file "
        "descriptors allow): beyond it the oldest one is closed. Where connections or file "
        "descriptors run out, those without authentication make way.",
        "Idle connections are closed after connections.max.idle.ms. SaslAuthenticate before "
        "SaslHandshake closes the connection; another request after it has an error answer.",
        "Strangers keep little, and nothing else of theirs is decoded.",
    ),
    Difference(
        "SASL: another mechanism at re-authentication",
        "SASL_AUTHENTICATION_FAILED, with the reason.",
        "The connection is closed without an answer.",
        "Its owner reads why.",
    ),
    Difference(
        "TLS: principals",
        "Patterns of ssl.principal.mapping.rules are those of RE2: without look-around and "
        "references. All but `^CN=(.*)$` and its like need the extra `re2`. "
        "principal.builder.class is refused.",
        "Patterns of Java.",
        "The name is the peer's choice, and Java's patterns can take exponential time.",
    ),
    Difference(
        "Produce: timestamps",
        "The limits of message.timestamp.before.max.ms and .after.max.ms are compared with the "
        "first and the largest timestamp of a batch, as its header gives them.",
        "Every record is checked.",
        "A batch stays compressed from socket to disk. To look at each record would cost more "
        "than all other work on the batch.",
    ),
    Difference(
        "Produce: records in a batch",
        "The header is checked: its count must fit the last offset delta and the bytes that the "
        "batch can decompress to. Records are read if the topic is compacted or has another codec, "
        "or if message.records.validation.enable is set, a key of Barnabas alone (default false; "
        "for all topics log.message.records.validation.enable). Then lengths, offsets, "
        "timestamps and headers of every record are checked, and a header's name must be UTF-8.",
        "Every record is read. A header's name may be any bytes, and offsets that are not "
        "consecutive are corrected.",
        "To read each record would cost more than all other work on the batch. A batch that no "
        "consumer can read stops those that do not skip it.",
    ),
    Difference(
        "Size of decompressed batches",
        "Where the broker reads records (at the append as above, for a search by time, at "
        "compaction), a batch may decompress to 32 times max.message.bytes, and to 32 MiB in any "
        "case. A larger one is refused with INVALID_RECORD, a search by time ends with "
        "CORRUPT_MESSAGE, and its log is not compacted until the next start. "
        "`max.decompressed.message.bytes` bounds one record besides, as in Kafka. A block of "
        "Snappy may have 92 MB.",
        "The batch has no bound, only each record.",
        "A few kilobytes can decompress to gigabytes.",
    ),
    Difference(
        "Elements of a request",
        "A request may have 100,000 elements as a whole (the items of all its arrays, and tagged "
        "fields), a controller's message 1,048,576, and one section 64 tagged fields. The "
        "connection of a larger request is closed, with a warning in the log; "
        "barnabas_server_invalid_requests_total counts them.",
        "Only socket.request.max.bytes bounds a request.",
        "Elements take far more memory than their bytes. A client that names 10,000 partitions "
        "needs 20,000 elements.",
    ),
    Difference(
        "Produce: internal topics",
        "No client may write to them.",
        "The client id `__admin_client` may.",
        "A client chooses its client id.",
    ),
    Difference(
        "Produce: the owner of a transaction",
        "A partition remembers the transactional id for which its open transaction was verified. "
        "Another one that names the same producer id gets INVALID_PRODUCER_ID_MAPPING. After a "
        "restart the coordinator is asked again.",
        "Once a transaction is open in a partition, its producer id and epoch are enough.",
        "A producer id can be guessed, and a record in another client's transaction cannot be "
        "taken back.",
    ),
    Difference(
        "Produce: a transaction that the older protocol opened",
        "It takes nothing from Produce v12 and later: the coordinator is asked, and the batch "
        "belongs to the next transaction.",
        "Clients must take another epoch before they change the protocol (KAFKA-18227).",
        "A client that does not would write into a transaction that is being ended.",
    ),
    Difference(
        "WriteTxnMarkers between brokers",
        "A marker that arrives over an older connection than the latest of the coordinator's "
        "broker is not written. One whose coordinator epoch is above every leader epoch of "
        "`__transaction_state` gets COORDINATOR_NOT_AVAILABLE.",
        "It is written, and may end the next transaction of a producer of the older protocol, or "
        "fence the producer's coordinator for good.",
        "A delayed request has been sent again long ago, and an epoch of the future is made up.",
    ),
    Difference(
        "Fetch of a follower",
        "Needs the epoch of the broker's present registration, which the leader reads from the "
        "metadata store. Any other gets STALE_BROKER_EPOCH, and a Fetch without one (before v15) "
        "NOT_LEADER_OR_FOLLOWER.",
        "Only an epoch below the one in the metadata cache is refused, and none (-1) is accepted.",
        "An epoch of the future would shut the real follower out, and a made-up position would "
        "commit records that no follower has.",
    ),
    Difference(
        "ListTransactions: the pattern",
        "Needs google-re2, the extra `re2`. Without it a pattern gets UNSUPPORTED_VERSION, and the "
        "broker's log names the extra. Takes up to 4096 bytes, 128 classes such as `\\pL` and "
        "counted repeats, and 256 KB of memory; more is INVALID_REGULAR_EXPRESSION.",
        "Always available, of any size.",
        "google-re2 has no wheels for musl. Python's own expressions can take exponential time. "
        "RE2 compiles some expressions of 64 KB in 1.6 s, and with groups they need 500 MB.",
    ),
    Difference(
        "`__transaction_state` in a transaction",
        "TOPIC_AUTHORIZATION_FAILED, also from AddPartitionsToTxn of brokers (v4 and v5) and from "
        "WriteTxnMarkers.",
        "A client that may act as a broker can add it, and write markers into it.",
        "No transaction writes there. A marker would make the log unreadable to its coordinator.",
    ),
    Difference(
        "`__transaction_state`: the end of a transaction",
        "With one replica and no fsync before the acknowledgement, a CompleteCommit or "
        "CompleteAbort that follows another one within 10 ms is written with the next record of "
        "its partition, or after 10 ms; a stop writes it. DescribeTransactions shows it at once.",
        "Written when the last marker is.",
        "One append less for each transaction. After a crash the markers are sent again, as from "
        "any Prepare state.",
    ),
    Difference(
        "Coordinators and max.message.bytes",
        "A marker is written whatever the topic's limit, and so is a coordinator's batch of up to "
        "1,048,588 bytes, the default of the limit.",
        "A limit below the size of a marker, 78 bytes, keeps transactions in PrepareCommit, and a "
        "low message.max.bytes refuses commits and memberships of all groups.",
        "A decided transaction must end. One changed key must not stop all groups.",
    ),
    Difference(
        "cleanup.policy of internal topics",
        "AlterConfigs and IncrementalAlterConfigs refuse every value but `compact` for "
        "`__consumer_offsets` and `__transaction_state`: INVALID_CONFIG.",
        "Every value is taken.",
        "Coordinators load their state from these topics.",
    ),
    Difference(
        "Limits that keep all clients out",
        "AlterConfigs and IncrementalAlterConfigs refuse max.connections=0, also of one listener, "
        "and max.connections.per.ip=0 without an address above 0 in "
        "max.connections.per.ip.overrides: INVALID_CONFIG, with the remedy. Such a value in the "
        "metadata store is ignored, with an error in the log. A broker does not start with such a "
        "value in its file, except max.connections=0 of one listener.",
        "It is taken (max.connections.per.ip=0 if there is any override).",
        "No client could connect to change it back.",
    ),
    Difference(
        "Markers of a topic that was created again with fewer partitions",
        "A partition that the metadata store does not have needs no marker.",
        "The same, by the broker's own metadata cache.",
        "Only the store can tell a deleted partition from one that is not known yet.",
    ),
    Difference(
        "`replica.fetch.backoff.ms`",
        "The longest pause after an error of a partition; the first is a sixteenth of it.",
        "The length of every pause.",
        "Most of these errors are over as soon as a leader has heard that it leads: new topics and "
        "new leaders accept acks=all that much sooner.",
    ),
    Difference(
        "In-sync followers that disconnect",
        "A follower that closes its connection and does not fetch again within 500 ms is proposed "
        "to leave the ISR.",
        "It leaves when replica.lag.time.max.ms is over or the controller has noticed its end.",
        "After kill -9 of a follower, acks=all goes on in half a second.",
    ),
    Difference(
        "Elections: brokers that were not shut down cleanly",
        "A broker's registration tells how its last run ended. Unless it was closed cleanly, it "
        "leaves every ISR that has another member, before any election. The last member "
        "leads again if its machine has not rebooted or its topic flushes first "
        "(flush.messages=1), and if no log directory of it is new or gone. Otherwise only an "
        "unclean election makes it the leader, and the partition's node says so (`doubtful`).",
        "With ZooKeeper it stayed in the ISRs and led again. KRaft keeps eligible leaders beside "
        "the ISR (KIP-966).",
        "The reboot of one machine must not lose records that several replicas acknowledged.",
    ),
    Difference(
        "Elections: all brokers away at once",
        "A new controller that finds none of the earlier brokers registered waits for "
        "zookeeper.session.timeout.ms before it moves a leader.",
        "With ZooKeeper, the broker that registered first became leader.",
        "The metadata store was away, and the brokers come back.",
    ),
    Difference(
        "High watermark of followers whose Fetch is parked",
        "It reaches them after 10 ms, if no records do before.",
        "It waits for replica.fetch.wait.max.ms, if no records come before.",
        "A replica that is elected, or read from (KIP-392), then knows what is committed.",
    ),
    Difference(
        "replica.selector.class",
        "LeaderSelector or RackAwareReplicaSelector of org.apache.kafka.common.replica.",
        "Any class on the class path.",
        "A Python broker cannot load Java classes.",
    ),
    Difference(
        "ApiVersions: consumer groups",
        "ConsumerGroupHeartbeat and ConsumerGroupDescribe are announced while group.version is 1.",
        "They are always announced, and answer UNSUPPORTED_VERSION below that level.",
        "A client learns at once that it has to use the classic protocol.",
    ),
    Difference(
        "ApiVersions: features",
        "transaction.version, group.version, and `barnabas.transaction.registration`: KIP-609 is "
        "understood.",
        "Also metadata.version, kraft.version, share.version and others.",
        "They are levels of KRaft and of APIs that are not served. Clients ignore features that "
        "they do not know.",
    ),
    Difference(
        "UpdateFeatures: features",
        "transaction.version, group.version and `barnabas.transaction.registration` can be "
        "changed. A release "
        "as a whole (`kafka-features.sh upgrade --release-version`) cannot be requested.",
        "Every feature of a release can be changed, metadata.version among them.",
        "A release names levels of KRaft and of APIs that are not served, and all of them or none "
        "are set.",
    ),
    Difference(
        "DescribeTransactions: recent events",
        "Tagged field 10000 of the request asks for them; tags 10000 to 10002 of each transaction "
        "have the events, the time left and the client's address.",
        "No such fields.",
        "`barnabas transactions why` needs them. A client that does not ask gets none, and a "
        "client that does not know the tags skips them.",
    ),
    Difference(
        "ListOffsets: counts of records",
        "Tagged field 10000 of a partition in the request, with the timestamp -1, has a committed "
        "offset; tags 10000 to 10004 of the answer have the records behind it that a "
        "read_committed consumer will still be given, those that are held back, how far they are "
        "counted, the last stable offset, and the producer id of the oldest open transaction. "
        "`group.lag.counted.batches` bounds the count, and 0 switches it off.",
        "No such fields. `barnabas groups describe` reads the records there.",
        "A lag in offsets also counts markers, aborted records and records that are gone. A client "
        "that does not ask gets none, and a client that does not know the tags skips them.",
    ),
    Difference(
        "InitProducerId v6: two-phase commit",
        "Served in full (KIP-939), and announced where `transaction.two.phase.commit.enable` is "
        "on. It needs transaction.version 2. While the key is off, Enable2Pc and KeepPreparedTxn "
        "get TRANSACTIONAL_ID_AUTHORIZATION_FAILED before every other error.",
        "Behind `unstable.api.versions.enable`. KeepPreparedTxn gets UNSUPPORTED_VERSION, and "
        "Enable2Pc works at every level of transaction.version.",
        "Apache Kafka has not released it. A keep needs an epoch for each transaction and the "
        "newer format of the log.",
    ),
    Difference(
        "InitProducerId v6: a pin",
        "Enable2Pc and KeepPreparedTxn together lift the timeout of the open transaction. "
        "KeepPreparedTxn alone leaves the timeout that the transaction has.",
        "The KIP does not say it.",
        "A process can keep what others have written with an ordinary timeout, and then commit "
        "it however long the decision takes.",
    ),
    Difference(
        "A kept transaction",
        "Its records and markers bear the ongoing producer, and EndTxn needs the client's. The "
        "ongoing producer gets PRODUCER_FENCED, from leaders INVALID_PRODUCER_EPOCH; the client's "
        "gets INVALID_TXN_STATE where it adds a partition. InitProducerId with the ongoing "
        "producer's id and epoch is fenced as well. A leader that has the transaction open takes "
        "further records of the ongoing producer.",
        "As the KIP describes it; not built.",
        "The coordinator cannot revoke what a leader has verified. A process that keeps a "
        "transaction must know that its writer has flushed.",
    ),
    Difference(
        "DescribeTransactions: kept transactions",
        "Tags 10003 to 10005 have the client's producer id and epoch, and that the transaction is "
        "kept. Other transactions do not have them.",
        "No such fields.",
        "An operator and a tool must know who may end the transaction.",
    ),
    Difference(
        "Internal topics: created by a request for metadata",
        "`__consumer_offsets` and `__transaction_state`. `__share_group_state` stays unknown: no "
        "client may create it or write to it.",
        "All three are created when Metadata asks for them.",
        "No coordinator of ours uses the third yet.",
    ),
    Difference(
        "OffsetFetch before v7: open transactions",
        "COORDINATOR_LOAD_IN_PROGRESS while an open transaction has committed an offset of a "
        "requested partition. `group.unstable.offsets.block.old.clients` switches this off.",
        "The offset from before the transaction.",
        "These clients (aiokafka) cannot ask for stable offsets (KIP-447). A member that took over "
        "at the old offset would repeat the work of a transaction that may still be committed. "
        "The clients know this error, and ask again.",
    ),
    Difference(
        "OffsetFetch v2 to v7: errors of a group",
        "In the response of the group and of every requested partition.",
        "In the response of the group; no partitions are listed.",
        "aiokafka looks at partitions only. It would take a group that is being loaded for one "
        "that never committed.",
    ),
    Difference(
        "Internal topics: replicas",
        "One replica and min.insync.replicas 1 while the broker is alone with its embedded "
        "metadata.",
        "Creation waits for as many brokers as offsets.topic.replication.factor, 3, asks for.",
        "One broker must work without a setting. In a cluster the factor is never smaller than "
        "configured.",
    ),
    Difference(
        "Broker keys",
        "DescribeConfigs lists the keys of configuration.md, and AlterConfigs takes no other, but "
        "for keys that tools set: it stores the dynamic keys of Kafka that mean nothing here, such "
        "as num.io.threads and `sasl.kerberos.*`, and the log warns of them. They are listed when "
        "they are set.",
        "Every key of KRaft is listed, and unknown ones are stored.",
        "A key that is accepted has its effect.",
    ),
    Difference(
        "Broker keys: a list with an item twice",
        "AlterConfigs takes it, and it counts once, as in a file and for a topic.",
        "4.4 refuses it for brokers (INVALID_REQUEST), and takes it in files and for topics. 4.3 "
        "takes it everywhere.",
        "One rule for a list wherever it is written.",
    ),
    Difference(
        "Broker keys: listeners",
        "listeners, advertised.listeners and listener.security.protocol.map are read at the start.",
        "They can be altered for one broker while it runs.",
        "Sockets are opened once.",
    ),
    Difference(
        "Broker keys: node.id",
        "One key, listed as broker.id; files may use both names.",
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
        "96 MiB by default.",
        "No limit by default.",
        "Every queue has a limit: many connections must not take all memory.",
    ),
    Difference(
        "max.connections",
        "A connection that waits takes the place of an anonymous one that is idle for 0.4 s, first "
        "of one that has sent no whole request, then of the one that is idle longest. It waits "
        "while all others have requests in progress. File descriptors that run out are treated "
        "alike.",
        "It waits until another connection is closed.",
        "A crowd of silent connections must not keep clients out.",
    ),
    Difference(
        "A request that is sent too slowly",
        "One that has begun and brings less than 16 KiB in 10 s is cut. If it holds memory for "
        "which another request has waited for a second, it is cut as soon as it stands.",
        "It may take any time, while each connections.max.idle.ms brings a byte.",
        "A few peers that announce large requests must not hold the memory of all others.",
    ),
    Difference(
        "Group keys",
        "None is accepted.",
        "Keys for consumer, share and streams groups.",
        "They have no effect on classic groups.",
    ),
    Difference(
        "Reassignments: /admin/reassign_partitions",
        "The node has no effect. AlterPartitionReassignments moves partitions, and the progress "
        "is in /brokers/topics, as in Kafka.",
        "Before 4.0 a controller took the node as a command of Kafka's older tool.",
        "The tool has not used it since Kafka 2.6.",
    ),
    Difference(
        "AlterReplicaLogDirs: a crash at its end",
        "Of two directories of a replica the start takes the one that was written last.",
        "The start fails until an operator has deleted one of the two.",
        "Leader epochs and ends of the logs tell which one it is.",
    ),
    Difference(
        "Reassignments to a broker that is down",
        "INVALID_REPLICA_ASSIGNMENT, as for a broker that does not exist.",
        "It begins, and waits for the broker. With ZooKeeper it was refused.",
        "The metadata have live brokers only.",
    ),
    Difference(
        "Metadata of a partition without a leader",
        "isr_nodes has the last in-sync replica, and eligible_leader_replicas is empty.",
        "With eligible leader replicas (KIP-966) that field has it, and isr_nodes is empty.",
        "The partition's node has the ISR, as in Kafka with ZooKeeper.",
    ),
    Difference(
        "min.insync.replicas while a partition is reassigned",
        "It counts no more replicas than the partition has without those that are being added.",
        "It counts all of them: if min.insync.replicas is 2, a partition of one replica refuses "
        "acks=all until its new replicas have caught up.",
        "A reassignment must not stop writes.",
    ),
    Difference(
        "auto.leader.rebalance.enable",
        "leader.imbalance.per.broker.percentage holds for each broker, as in Kafka before 4.0. "
        "No leadership returns while partitions are reassigned.",
        "The controller looks at all partitions and at no percentage.",
        "A key that is accepted has its effect.",
    ),
    Difference(
        "Leader epochs after a restart",
        "A broker that stops cleanly and starts again raises the leader epoch of its partitions by "
        "1. Where it has the only replica it stays, except for partitions of coordinators.",
        "By 2 on a single node: once when it stops leading, and once when it leads again.",
        "A broker that stops alone leads its partitions up to its end.",
    ),
    Difference(
        "InitProducerId over an open transaction",
        "The request waits until the open transaction has ended, for "
        "`transaction.blocking.max.wait.ms` at most, and answers with the next epoch.",
        "Answers CONCURRENT_TRANSACTIONS, and the client asks again.",
        "Clients wait 20 to 100 ms before they ask again.",
    ),
    Difference(
        "Quotas of clients without an id",
        "The default quotas of clients count for them too.",
        "Only quotas of users count for them.",
        "A client could leave out its id to have no quota.",
    ),
    Difference(
        "Producer snapshots",
        "Beside each `.snapshot`, which is Kafka's, there is a `.window` file with the four "
        "batches of each producer for which Kafka's format has no room.",
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
        "File descriptors that run out",
        "CreateTopics and CreatePartitions answer POLICY_VIOLATION if the partitions and the "
        "connections of the controller's broker would need more descriptors than its limit, less "
        "1,024 (an eighth of a lower limit, or 32). A Produce or Fetch that cannot open a file is "
        "answered with KAFKA_STORAGE_ERROR, and the broker closes the files of idle partitions. "
        "The log says which limit to raise. A partition without records, or without appends since "
        "the start, has no file open.",
        "A log directory that cannot open a file goes offline, and a broker with one directory "
        "stops. A partition has several files open and mapped.",
        "The number of open files says nothing about a disk, and clients repeat the error.",
    ),
    Difference(
        "Strings that are not UTF-8",
        "The connection is closed, as for every body that cannot be decoded. The text in a client "
        "id is shown.",
        "Each wrong byte is replaced by U+FFFD.",
        "Two groups or topics must not become one.",
    ),
    Difference(
        "Produce: records that are null",
        "INVALID_RECORD.",
        "The request is never answered.",
        "A client that gets a response does not wait.",
    ),
    Difference(
        "AlterConfigs: a resource that is named twice",
        "INVALID_REQUEST.",
        "The request is never answered.",
        "A client that gets a response does not wait.",
    ),
    Difference(
        "A page to look at",
        "`barnabas console` serves pages about any cluster from Kafka 3.0 on. "
        "[console.md](console.md#not-there-yet) has what it lacks.",
        "None.",
        "An operator wants to see what a transaction does to which consumers.",
    ),
    Difference(
        "Texts",
        "Error messages and the documentation of configuration keys are our own words, except "
        "for configuration errors that tools show.",
        "Kafka's.",
        "They are for people.",
    ),
    Difference(
        "Console tools: values with a schema id",
        "`consume --codec` and `produce --codec` take Avro, Protobuf and JSON Schema in the wire "
        "format of Confluent's registry, with its API (docs/formats.md). A record that cannot be "
        "decoded is named and left out. Values only.",
        "Apache Kafka's console tools have formatters of Confluent, which stop at such a record.",
        "One broken record should not hide those behind it.",
    ),
)
