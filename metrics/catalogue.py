"""Every metric of a broker: the names that Kafka's JMX exporter gives them, and what they mean."""

from typing import Final

from barnabas.metrics.registry import LATENCY_SECONDS, Cell, Family, Registry

_TOPIC: Final = "kafka_server_brokertopicmetrics_"
_REQUEST: Final = "kafka_network_requestmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_GROUPS: Final = "kafka_server_group_coordinator_metrics_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_ELECTIONS: Final = "kafka_controller_controllerstats_"
_TRANSACTIONS: Final = "kafka_coordinator_transaction_"
_PARTITION: Final = ("topic", "partition")


class BrokerMetrics:
    """The metrics by what feeds them. Families without a cell or a reader report nothing."""

    def __init__(self, registry: Registry) -> None:
        self.requests = RequestMetrics(registry)
        self.topics = TopicMetrics(registry)
        self.replicas = ReplicaMetrics(registry)
        self.partitions = PartitionMetrics(registry)
        self.replication = ReplicationMetrics(registry)
        self.fetchers = FetcherMetrics(registry)
        self.logs = LogMetrics(registry)
        self.controller = ControllerMetrics(registry)
        self.groups = GroupMetrics(registry)
        self.transactions = TransactionMetrics(registry)
        self.process = ProcessMetrics(registry)
        self.loop_lag = registry.histogram(
            "barnabas_event_loop_lag_seconds",
            "How late the event loop ran a timer, sampled: time that requests waited for it.",
            buckets=LATENCY_SECONDS,
        )


class RequestMetrics:
    """Fed by the server: connections, requests and their errors."""

    def __init__(self, registry: Registry) -> None:
        self.requests = registry.counter(
            _REQUEST + "requests_total", "Requests received.", ("request", "version")
        )
        self.errors = registry.counter(
            _REQUEST + "errors_total",
            "Error codes in answers, of the whole or of a part of it.",
            ("request", "error"),
        )
        self.total_time_ms = registry.histogram(
            _REQUEST + "totaltimems",
            "Time from a request's last byte to its answer, waiting included.",
            ("request",),
        )
        self.request_bytes = registry.counter(
            _REQUEST + "requestbytes_total", "Bytes of requests received.", ("request",)
        )
        self.connections = registry.gauge(
            "kafka_server_socketservermetrics_connection_count", "Open connections.", ("listener",)
        )
        self.connections_opened = registry.counter(
            "kafka_server_socketservermetrics_connection_creation_total",
            "Connections accepted.",
            ("listener",),
        )
        self.connections_refused = registry.counter(
            "barnabas_server_connections_refused_total",
            "Connections closed because of a limit.",
            ("listener",),
        )
        self.connections_expired = registry.counter(
            "kafka_network_socketserver_expiredconnectionskilledcount_total",
            "Connections closed because they were idle.",
        )
        self.queued_bytes = registry.gauge(
            "kafka_network_socketserver_memorypoolused",
            "Bytes of requests in work, bounded by queued.max.request.bytes.",
        )


class TopicMetrics:
    """Fed by Produce and Fetch, per topic."""

    def __init__(self, registry: Registry) -> None:
        topic = ("topic",)
        self.messages_in = registry.counter(
            _TOPIC + "messagesin_total", "Records appended by producers.", topic
        )
        self.bytes_in = registry.counter(
            _TOPIC + "bytesin_total", "Bytes of record batches appended by producers.", topic
        )
        self.bytes_out = registry.counter(
            _TOPIC + "bytesout_total", "Bytes of record batches sent to consumers.", topic
        )
        self.bytes_rejected = registry.counter(
            _TOPIC + "bytesrejected_total", "Bytes of record batches refused for their size.", topic
        )
        self.produce_requests = registry.counter(
            _TOPIC + "totalproducerequests_total", "Produce requests, per topic in them.", topic
        )
        self.failed_produce_requests = registry.counter(
            _TOPIC + "failedproducerequests_total", "Produce requests answered by an error.", topic
        )
        self.fetch_requests = registry.counter(
            _TOPIC + "totalfetchrequests_total", "Fetch requests, per topic in them.", topic
        )
        self.failed_fetch_requests = registry.counter(
            _TOPIC + "failedfetchrequests_total", "Fetch requests answered by an error.", topic
        )


class ReplicaMetrics:
    """Fed by the replica manager."""

    def __init__(self, registry: Registry) -> None:
        self.partitions = registry.gauge(
            _REPLICAS + "partitioncount", "Partitions with a replica on this broker."
        )
        self.leaders = registry.gauge(
            _REPLICAS + "leadercount", "Partitions that this broker leads."
        )
        self.under_replicated = registry.gauge(
            _REPLICAS + "underreplicatedpartitions",
            "Partitions led here whose in-sync set is smaller than their replica set.",
        )
        self.under_min_isr = registry.gauge(
            _REPLICAS + "underminisrpartitioncount",
            "Partitions led here whose in-sync set is below min.insync.replicas: no acks=all.",
        )
        self.at_min_isr = registry.gauge(
            _REPLICAS + "atminisrpartitioncount",
            "Partitions led here whose in-sync set is exactly min.insync.replicas.",
        )
        self.reassigning = registry.gauge(
            _REPLICAS + "reassigningpartitions", "Partitions led here that get other replicas."
        )
        self.isr_shrinks = registry.counter(
            _REPLICAS + "isrshrinks_total",
            "In-sync sets that their leader here has shrunk; not by the controller.",
        )
        self.isr_expands = registry.counter(
            _REPLICAS + "isrexpands_total", "In-sync sets that their leader here has expanded."
        )
        self.failed_isr_updates = registry.counter(
            _REPLICAS + "failedisrupdates_total",
            "Changes of in-sync sets that the controller did not make, or could not be asked for.",
        )
        self.offline = registry.gauge(
            _REPLICAS + "offlinereplicacount", "Replicas in a log directory that failed."
        )
        self.producer_ids = registry.gauge(
            _REPLICAS + "produceridcount", "Producer ids that partitions remember."
        )


class FetcherMetrics:
    """Fed by the fetchers of what this broker follows."""

    def __init__(self, registry: Registry) -> None:
        self.max_lag = registry.gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Committed records that the partition furthest behind its leader has not fetched.",
        )
        self.min_fetch_rate = registry.gauge(
            "kafka_server_replicafetchermanager_minfetchrate",
            "Fetch requests per second over the slowest of the lines to leaders.",
        )
        self.lag = registry.gauge(
            "kafka_server_fetcherlagmetrics_consumerlag",
            "Committed records that a follower has not fetched.",
            _PARTITION,
        )
        self.bytes_in = registry.counter(
            _TOPIC + "replicationbytesin_total", "Bytes of record batches fetched from leaders."
        )
        self.reassignment_bytes_in = registry.counter(
            _TOPIC + "reassignmentbytesin_total",
            "Bytes of record batches fetched for replicas that a reassignment brings here.",
        )


class PartitionMetrics:
    """Of each partition that this broker leads."""

    def __init__(self, registry: Registry) -> None:
        def each(name: str, meaning: str) -> Family[Cell]:
            return registry.gauge("kafka_cluster_partition_" + name, meaning, _PARTITION)

        self.replicas = each("replicascount", "Replicas of a partition led here.")
        self.in_sync = each("insyncreplicascount", "Of those, how many are in sync.")
        self.under_replicated = each("underreplicated", "1 if not all of them are.")
        self.under_min_isr = each("underminisr", "1 if fewer than min.insync.replicas are.")
        self.at_min_isr = each("atminisr", "1 if exactly min.insync.replicas are.")
        self.last_stable_offset = each(
            "laststableoffset", "Where read_committed ends in a partition led here."
        )
        self.last_stable_offset_lag = each(
            "laststableoffsetlag", "Records between the last stable offset and the high watermark."
        )


class ReplicationMetrics:
    """Fed by what brokers read from each other."""

    def __init__(self, registry: Registry) -> None:
        self.bytes_out = registry.counter(
            _TOPIC + "replicationbytesout_total", "Bytes of record batches sent to followers."
        )
        self.reassignment_bytes_out = registry.counter(
            _TOPIC + "reassignmentbytesout_total",
            "Bytes of record batches sent to followers that a reassignment brings.",
        )
        self.leader_byte_rate = registry.gauge(
            "kafka_server_leaderreplication_byte_rate",
            "Bytes per second sent of throttled partitions, as the throttle measures them.",
        )
        self.follower_byte_rate = registry.gauge(
            "kafka_server_followerreplication_byte_rate",
            "Bytes per second fetched of throttled partitions, as the throttle measures them.",
        )


class LogMetrics:
    """Fed by the logs and their manager."""

    def __init__(self, registry: Registry) -> None:
        self.size = registry.gauge("kafka_log_log_size", "Bytes of a partition.", _PARTITION)
        self.segments = registry.gauge(
            "kafka_log_log_numlogsegments", "Segments of a partition.", _PARTITION
        )
        self.start_offset = registry.gauge(
            "kafka_log_log_logstartoffset", "First offset of a partition.", _PARTITION
        )
        self.end_offset = registry.gauge(
            "kafka_log_log_logendoffset", "Offset after the last record.", _PARTITION
        )
        self.offline_directories = registry.gauge(
            "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that failed."
        )
        self.flush_time_ms = registry.histogram(
            "kafka_log_logflushstats_logflushrateandtimems", "Time of an fsync of a log."
        )


class ControllerMetrics:
    """Fed by the controller; other brokers report zeros."""

    def __init__(self, registry: Registry) -> None:
        self.active = registry.gauge(
            _CONTROLLER + "activecontrollercount", "1 on the broker that is the controller."
        )
        self.topics = registry.gauge(_CONTROLLER + "globaltopiccount", "Topics of the cluster.")
        self.partitions = registry.gauge(
            _CONTROLLER + "globalpartitioncount", "Partitions of the cluster."
        )
        self.offline_partitions = registry.gauge(
            _CONTROLLER + "offlinepartitionscount", "Partitions without a leader."
        )
        self.brokers = registry.gauge(_CONTROLLER + "activebrokercount", "Live brokers.")
        self.preferred_imbalance = registry.gauge(
            _CONTROLLER + "preferredreplicaimbalancecount",
            "Partitions that another replica leads than the first.",
        )
        self.queued = registry.gauge(
            "kafka_controller_controllereventmanager_eventqueuesize",
            "Events that wait for the controller.",
        )
        self.elections = registry.counter(
            _ELECTIONS + "leaderelections_total", "Partitions that were given another leader."
        )
        self.unclean_elections = registry.counter(
            _ELECTIONS + "uncleanleaderelections_total",
            "Of those, by a replica that may lack what was acknowledged.",
        )


class GroupMetrics:
    """Fed by the group coordinator."""

    def __init__(self, registry: Registry) -> None:
        self.groups = registry.gauge(
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "Groups coordinated here, by state.",
            ("state",),
        )
        self.offsets = registry.gauge(
            "kafka_coordinator_group_groupmetadatamanager_numoffsets",
            "Committed offsets kept here.",
        )
        self.offset_commits = registry.counter(
            _GROUPS + "offset_commit_count_total", "Offsets committed, in transactions too."
        )
        self.offset_expirations = registry.counter(
            _GROUPS + "offset_expiration_count_total", "Committed offsets that have expired."
        )
        self.offset_deletions = registry.counter(
            _GROUPS + "offset_deletion_count_total", "Committed offsets deleted by OffsetDelete."
        )
        self.lag = registry.gauge(
            "kafka_consumergroup_lag",
            "Records between a group's committed offset and the high watermark. Told by the "
            "group's coordinator, of partitions that have an in-sync replica on that broker; a "
            "follower knows the high watermark of its last fetch.",
            ("consumergroup", "topic", "partition"),
        )


class TransactionMetrics:
    """Fed by the transaction coordinator, and by leaders that ask it."""

    def __init__(self, registry: Registry) -> None:
        self.ids = registry.gauge(
            _TRANSACTIONS + "transactionalids",
            "Transactional ids coordinated here, by the state of their latest transaction.",
            ("state",),
        )
        self.markers_queued = registry.gauge(
            _TRANSACTIONS + "transactionmarkerchannelmanager_queuedmarkers",
            "Markers of decided transactions that are not written yet.",
        )
        self.markers_leaderless = registry.gauge(
            _TRANSACTIONS + "transactionmarkerchannelmanager_unknowndestinationqueuesize",
            "Markers that wait for their partition to have a leader.",
        )
        self.completions_refused = registry.gauge(
            _TRANSACTIONS + "transactionmarkerchannelmanager_logappendretryqueuesize",
            "Transactions with all their markers, whose end is written again to the log.",
        )
        self.waiters = registry.gauge(
            _TRANSACTIONS + "waiters",
            "Calls that wait for the markers of the transaction before (KIP-609).",
        )
        self.open = registry.gauge(
            "kafka_log_producerstatemanager_opentransactions",
            "Transactions that are open in a partition.",
            _PARTITION,
        )
        self.passed_by_retention = registry.counter(
            "barnabas_log_opentransactionspassedbyretention_total",
            "Open transactions whose first records retention has dropped.",
        )
        self.verification_failures = registry.counter(
            "kafka_server_addpartitionstotxnmanager_verificationfailurerate_total",
            "Partitions that a coordinator refused to verify or to add (KIP-890).",
        )
        self.verification_time_ms = registry.histogram(
            "kafka_server_addpartitionstotxnmanager_verificationtimems",
            "Time until the coordinator's answer.",
        )


class ProcessMetrics:
    """Fed by observability/: what the operating system says of the broker."""

    def __init__(self, registry: Registry) -> None:
        self.memory = registry.gauge("process_resident_memory_bytes", "Resident memory.")
        self.cpu = registry.counter(
            "process_cpu_seconds_total", "Processor time, user and system together."
        )
        self.open_files = registry.gauge("process_open_fds", "Open file descriptors.")
        self.max_files = registry.gauge("process_max_fds", "File descriptors that may be open.")
        self.start_time = registry.gauge(
            "process_start_time_seconds", "When the broker started, in seconds since 1970."
        )
