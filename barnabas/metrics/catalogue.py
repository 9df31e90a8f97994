"""All metrics of a broker, with the names of Kafka's JMX exporter and their help texts."""

from typing import Final

from barnabas.metrics.registry import LATENCY_SECONDS, Cell, Family, Registry

_TOPIC: Final = "kafka_server_brokertopicmetrics_"
_REQUEST: Final = "kafka_network_requestmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_GROUPS: Final = "kafka_server_group_coordinator_metrics_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_ELECTIONS: Final = "kafka_controller_controllerstats_"
_TRANSACTIONS: Final = "kafka_coordinator_transaction_"
PARTITION: Final = ("topic", "partition")
"""The labels of the metrics of single partitions."""


class BrokerMetrics:
    """The metrics of a broker by component. A family without cells reports nothing."""

    def __init__(self, registry: Registry) -> None:
        self.requests = RequestMetrics(registry)
        self.topics = TopicMetrics(registry)
        self.replicas = ReplicaMetrics(registry)
        self.partitions = PartitionMetrics(registry)
        self.replication = ReplicationMetrics(registry)
        self.fetchers = FetcherMetrics(registry)
        self.quotas = QuotaMetrics(registry)
        self.logs = LogMetrics(registry)
        self.controller = ControllerMetrics(registry)
        self.groups = GroupMetrics(registry)
        self.transactions = TransactionMetrics(registry)
        self.process = ProcessMetrics(registry)
        self.loop_lag = registry.histogram(
            "barnabas_event_loop_lag_seconds",
            "Delay of timers on the event loop, sampled; requests wait as long.",
            buckets=LATENCY_SECONDS,
        )


class QuotaMetrics:
    """Metrics of the quotas of clients, by the key of the quota."""

    def __init__(self, registry: Registry) -> None:
        self.throttled = registry.counter(
            "barnabas_quota_throttled_requests_total",
            "Requests whose client was over a quota and has to wait.",
            ("quota",),
        )
        self.throttle_ms = registry.counter(
            "barnabas_quota_throttle_time_ms_total",
            "Time in ms that clients over a quota were told to wait.",
            ("quota",),
        )


class RequestMetrics:
    """Metrics of connections, requests and their errors, updated by the server."""

    def __init__(self, registry: Registry) -> None:
        self.requests = registry.counter(
            _REQUEST + "requests_total", "Requests received.", ("request", "version")
        )
        self.errors = registry.counter(
            _REQUEST + "errors_total",
            "Error codes in responses, of the whole response or of a part of it.",
            ("request", "error"),
        )
        self.total_time_ms = registry.histogram(
            _REQUEST + "totaltimems",
            "Time from a request's last byte to its response, including waits.",
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
        self.invalid_requests = registry.counter(
            "barnabas_server_invalid_requests_total",
            "Connections closed because of bytes that are no request, or of too many elements.",
            ("listener",),
        )
        self.authentication = AuthenticationMetrics(registry)
        self.exposures = registry.gauge(
            "barnabas_server_exposures",
            "1 for each danger of a configuration that the start of the broker warns of.",
            ("kind", "listener"),
        )
        self.certificate_expiry = registry.gauge(
            "barnabas_server_certificate_expiry_time_seconds",
            "Time at which the certificate of a listener expires, in seconds since 1970.",
            ("listener",),
        )
        self.connections_expired = registry.counter(
            "kafka_network_socketserver_expiredconnectionskilledcount_total",
            "Connections closed because they were idle, or because their session had expired.",
        )
        self.queued_bytes = registry.gauge(
            "kafka_network_socketserver_memorypoolused",
            "Bytes of requests being processed, bounded by queued.max.request.bytes.",
        )


class AuthenticationMetrics:
    """Metrics of TLS handshakes and SASL authentications, by listener."""

    def __init__(self, registry: Registry) -> None:
        self.failed = registry.counter(
            "kafka_server_socketservermetrics_failed_authentication_total",
            "Connections whose TLS handshake or SASL authentication failed, or took too long.",
            ("listener",),
        )
        self.succeeded = registry.counter(
            "kafka_server_socketservermetrics_successful_authentication_total",
            "Connections that authenticated with SASL.",
            ("listener",),
        )
        self.failed_again = registry.counter(
            "kafka_server_socketservermetrics_failed_reauthentication_total",
            "Connections closed because their client could not authenticate again.",
            ("listener",),
        )
        self.succeeded_again = registry.counter(
            "kafka_server_socketservermetrics_successful_reauthentication_total",
            "Authentications on connections that had authenticated before.",
            ("listener",),
        )


class TopicMetrics:
    """Metrics of topics, updated by Produce and Fetch."""

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
            _TOPIC + "bytesrejected_total",
            "Bytes of record batches rejected for their size.",
            topic,
        )
        self.produce_requests = registry.counter(
            _TOPIC + "totalproducerequests_total",
            "Produce requests, counted once per topic.",
            topic,
        )
        self.failed_produce_requests = registry.counter(
            _TOPIC + "failedproducerequests_total", "Produce requests that failed.", topic
        )
        self.fetch_requests = registry.counter(
            _TOPIC + "totalfetchrequests_total", "Fetch requests, counted once per topic.", topic
        )
        self.failed_fetch_requests = registry.counter(
            _TOPIC + "failedfetchrequests_total", "Fetch requests that failed.", topic
        )


class ReplicaMetrics:
    """Metrics of the replica manager."""

    def __init__(self, registry: Registry) -> None:
        self.partitions = registry.gauge(
            _REPLICAS + "partitioncount", "Partitions with a replica on this broker."
        )
        self.leaders = registry.gauge(
            _REPLICAS + "leadercount", "Partitions that this broker leads."
        )
        self.under_replicated = registry.gauge(
            _REPLICAS + "underreplicatedpartitions",
            "Partitions led here whose ISR is smaller than their replica set.",
        )
        self.under_min_isr = registry.gauge(
            _REPLICAS + "underminisrpartitioncount",
            "Partitions led here with an ISR below min.insync.replicas; acks=all fails.",
        )
        self.at_min_isr = registry.gauge(
            _REPLICAS + "atminisrpartitioncount",
            "Partitions led here whose ISR is exactly min.insync.replicas.",
        )
        self.reassigning = registry.gauge(
            _REPLICAS + "reassigningpartitions", "Partitions led here that are being reassigned."
        )
        self.isr_shrinks = registry.counter(
            _REPLICAS + "isrshrinks_total",
            "ISR shrinks by leaders on this broker, not by the controller.",
        )
        self.isr_expands = registry.counter(
            _REPLICAS + "isrexpands_total", "ISR expansions by leaders on this broker."
        )
        self.failed_isr_updates = registry.counter(
            _REPLICAS + "failedisrupdates_total",
            "ISR changes that the controller refused, or that could not reach it.",
        )
        self.offline = registry.gauge(
            _REPLICAS + "offlinereplicacount", "Replicas in a failed log directory."
        )
        self.producer_ids = registry.gauge(
            _REPLICAS + "produceridcount", "Producer ids with state in a partition."
        )


class FetcherMetrics:
    """Metrics of the fetchers of partitions that this broker follows."""

    def __init__(self, registry: Registry) -> None:
        self.max_lag = registry.gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Committed records that a follower has not fetched, maximum over the partitions.",
        )
        self.min_fetch_rate = registry.gauge(
            "kafka_server_replicafetchermanager_minfetchrate",
            "Fetch requests per second of the slowest fetcher.",
        )
        self.lag = registry.gauge(
            "kafka_server_fetcherlagmetrics_consumerlag",
            "Committed records that a follower has not fetched.",
            PARTITION,
        )
        self.bytes_in = registry.counter(
            _TOPIC + "replicationbytesin_total", "Bytes of record batches fetched from leaders."
        )
        self.reassignment_bytes_in = registry.counter(
            _TOPIC + "reassignmentbytesin_total",
            "Bytes of record batches fetched for replicas that a reassignment adds to this broker.",
        )


class PartitionMetrics:
    """Metrics of each partition that this broker leads."""

    def __init__(self, registry: Registry) -> None:
        def each(name: str, meaning: str) -> Family[Cell]:
            return registry.gauge("kafka_cluster_partition_" + name, meaning, PARTITION)

        self.replicas = each("replicascount", "Replicas of a partition led here.")
        self.in_sync = each("insyncreplicascount", "In-sync replicas of a partition led here.")
        self.under_replicated = each(
            "underreplicated", "1 if a partition led here has out-of-sync replicas."
        )
        self.under_min_isr = each(
            "underminisr", "1 if a partition led here has an ISR below min.insync.replicas."
        )
        self.at_min_isr = each(
            "atminisr", "1 if a partition led here has an ISR of exactly min.insync.replicas."
        )
        self.last_stable_offset = each(
            "laststableoffset", "Last stable offset of a partition led here."
        )
        self.last_stable_offset_lag = each(
            "laststableoffsetlag", "Records between the last stable offset and the high watermark."
        )


class ReplicationMetrics:
    """Metrics of what leaders send and of the replication throttles."""

    def __init__(self, registry: Registry) -> None:
        self.bytes_out = registry.counter(
            _TOPIC + "replicationbytesout_total", "Bytes of record batches sent to followers."
        )
        self.reassignment_bytes_out = registry.counter(
            _TOPIC + "reassignmentbytesout_total",
            "Bytes of record batches sent to followers that a reassignment adds.",
        )
        self.leader_byte_rate = registry.gauge(
            "kafka_server_leaderreplication_byte_rate",
            "Bytes per second sent to throttled replicas, measured by the throttle.",
        )
        self.follower_byte_rate = registry.gauge(
            "kafka_server_followerreplication_byte_rate",
            "Bytes per second fetched for throttled replicas, measured by the throttle.",
        )


class LogMetrics:
    """Metrics of the logs and the log manager."""

    def __init__(self, registry: Registry) -> None:
        self.size = registry.gauge("kafka_log_log_size", "Bytes of a partition.", PARTITION)
        self.segments = registry.gauge(
            "kafka_log_log_numlogsegments", "Segments of a partition.", PARTITION
        )
        self.start_offset = registry.gauge(
            "kafka_log_log_logstartoffset", "First offset of a partition.", PARTITION
        )
        self.end_offset = registry.gauge(
            "kafka_log_log_logendoffset", "Offset after the last record.", PARTITION
        )
        self.offline_directories = registry.gauge(
            "kafka_log_logmanager_offlinelogdirectorycount", "Failed log directories."
        )
        self.free_bytes = registry.gauge(
            "barnabas_log_directory_free_bytes",
            "Bytes that are free on the volume of a log directory, looked up every 10 s.",
            ("directory",),
        )
        self.volume_bytes = registry.gauge(
            "barnabas_log_directory_volume_bytes",
            "Size of the volume of a log directory.",
            ("directory",),
        )
        self.flush_time_ms = registry.histogram(
            "kafka_log_logflushstats_logflushrateandtimems", "Duration of an fsync of a log."
        )


class ControllerMetrics:
    """Metrics of the active controller; other brokers report zeros."""

    def __init__(self, registry: Registry) -> None:
        self.active = registry.gauge(
            _CONTROLLER + "activecontrollercount", "1 on the active controller."
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
            "Partitions that are not led by their preferred replica.",
        )
        self.queued = registry.gauge(
            "kafka_controller_controllereventmanager_eventqueuesize",
            "Events in the controller's queue.",
        )
        self.elections = registry.counter(_ELECTIONS + "leaderelections_total", "Leader elections.")
        self.unclean_elections = registry.counter(
            _ELECTIONS + "uncleanleaderelections_total",
            "Leader elections of an out-of-sync replica, which may lose acknowledged records.",
        )


class GroupMetrics:
    """Metrics of the group coordinator."""

    def __init__(self, registry: Registry) -> None:
        self.groups = registry.gauge(
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "Classic groups coordinated here, by state.",
            ("state",),
        )
        self.by_type = registry.gauge(
            _GROUPS + "group_count", "Groups coordinated here, by type.", ("protocol",)
        )
        self.consumer_groups = registry.gauge(
            _GROUPS + "consumer_group_count",
            "Groups of the consumer protocol (KIP-848) coordinated here, by state.",
            ("state",),
        )
        self.classic_rebalances = registry.counter(
            _GROUPS + "group_completed_rebalance_count_total",
            "Rebalances of classic groups that were completed.",
        )
        self.consumer_rebalances = registry.counter(
            _GROUPS + "consumer_group_rebalance_count_total",
            "Epochs that groups of the consumer protocol began.",
        )
        self.offsets = registry.gauge(
            "kafka_coordinator_group_groupmetadatamanager_numoffsets",
            "Committed offsets of the groups coordinated here.",
        )
        self.offset_commits = registry.counter(
            _GROUPS + "offset_commit_count_total",
            "Offsets committed, including those in transactions.",
        )
        self.offset_expirations = registry.counter(
            _GROUPS + "offset_expiration_count_total", "Committed offsets that have expired."
        )
        self.offset_deletions = registry.counter(
            _GROUPS + "offset_deletion_count_total", "Committed offsets deleted by OffsetDelete."
        )
        self.lag = registry.gauge(
            "kafka_consumergroup_lag",
            "Records between a group's committed offset and the high watermark. Reported "
            "by the group's coordinator, for partitions with an in-sync replica on that broker; a "
            "follower uses the high watermark of its last fetch.",
            ("consumergroup", "topic", "partition"),
        )
        self.to_read = registry.gauge(
            "barnabas_consumergroup_records_to_read",
            "Records that a read_committed consumer of the group will still be given: without "
            "markers, aborted, compacted and deleted ones. Counted every 10 s, where the lag is "
            "reported. What `group.lag.counted.batches` does not reach counts as in the lag.",
            ("consumergroup", "topic", "partition"),
        )
        self.held_back = registry.gauge(
            "barnabas_consumergroup_records_held_back",
            "Records behind the last stable offset, which wait for an open transaction. Counted "
            "with the records to read.",
            ("consumergroup", "topic", "partition"),
        )


class TransactionMetrics:
    """Metrics of the transaction coordinator, and of the leaders that verify with it."""

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
            "Markers of partitions without a leader.",
        )
        self.completions_refused = registry.gauge(
            _TRANSACTIONS + "transactionmarkerchannelmanager_logappendretryqueuesize",
            "Transactions with all markers written, whose completion is written to the log again.",
        )
        self.overdue = registry.gauge(
            "barnabas_transactions_overdue",
            "Open transactions that have exceeded their timeout, and that the coordinator has not "
            "aborted yet.",
        )
        self.waiters = registry.gauge(
            _TRANSACTIONS + "waiters",
            "Requests that wait for the markers of the previous transaction (KIP-609).",
        )
        self.kept = registry.gauge(
            "barnabas_transactions_kept",
            "Open transactions that two-phase commit keeps for another client (KIP-939).",
        )
        self.oldest_kept = registry.gauge(
            "barnabas_transactions_kept_oldest_age_seconds",
            "Time since the oldest kept transaction began; 0 without one.",
        )
        self.open = registry.gauge(
            "kafka_log_producerstatemanager_opentransactions",
            "Open transactions of a partition.",
            PARTITION,
        )
        self.passed_by_retention = registry.counter(
            "barnabas_log_opentransactionspassedbyretention_total",
            "Open transactions whose first records were deleted by retention.",
        )
        self.verification_failures = registry.counter(
            "kafka_server_addpartitionstotxnmanager_verificationfailurerate_total",
            "Partitions for which a coordinator refused verification or addition (KIP-890).",
        )
        self.verification_time_ms = registry.histogram(
            "kafka_server_addpartitionstotxnmanager_verificationtimems",
            "Time until the coordinator's response.",
        )


class ProcessMetrics:
    """Metrics of the process from the operating system, updated by observability/."""

    def __init__(self, registry: Registry) -> None:
        self.memory = registry.gauge("process_resident_memory_bytes", "Resident memory.")
        self.cpu = registry.counter("process_cpu_seconds_total", "CPU time, user and system.")
        self.open_files = registry.gauge("process_open_fds", "Open file descriptors.")
        self.max_files = registry.gauge(
            "process_max_fds", "Maximum number of open file descriptors."
        )
        self.start_time = registry.gauge(
            "process_start_time_seconds", "Start time of the broker in seconds since the epoch."
        )
