"""All error codes of the protocol, and their replacements for older clients.

Numbers, names and retriability are Kafka 4.4's; the texts are ours.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Any, Final, Self

from barnabas.protocol.schema import Encoded, Message, fields_of


class ErrorCode(IntEnum):
    """An error code of the protocol (int16); `text` is for humans, `retriable` for clients."""

    text: str
    retriable: bool

    def __new__(cls, code: int, text: str, retriable: bool = False) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.text = text
        member.retriable = retriable
        return member

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """Return the error of a code on the wire; UNKNOWN_SERVER_ERROR for an unknown code."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = -1, "an unexpected error on the broker"
    NONE = 0, "no error"
    OFFSET_OUT_OF_RANGE = 1, "the offset lies outside the partition's log"
    CORRUPT_MESSAGE = 2, "a batch fails its CRC, its sizes or its layout", True
    UNKNOWN_TOPIC_OR_PARTITION = 3, "this broker does not know the topic or the partition", True
    INVALID_FETCH_SIZE = 4, "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader right now", True
    NOT_LEADER_OR_FOLLOWER = 6, "this broker is not the leader or a replica of the partition", True
    REQUEST_TIMED_OUT = 7, "the request was not completed within its timeout", True
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica is not available", True
    MESSAGE_TOO_LARGE = 10, "the request holds a batch that is larger than the broker allows"
    STALE_CONTROLLER_EPOCH = 11, "the controller has been replaced by a newer one"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata beside an offset is too long"
    NETWORK_EXCEPTION = 13, "the connection broke before an answer came", True
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is still loading its state", True
    COORDINATOR_NOT_AVAILABLE = 15, "the coordinator is not available", True
    NOT_COORDINATOR = 16, "another broker is the coordinator", True
    INVALID_TOPIC_EXCEPTION = 17, "the topic is internal or its name is invalid"
    RECORD_LIST_TOO_LARGE = 18, "the batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, "fewer replicas are in sync than min.insync.replicas", True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "written, but by then fewer replicas were in sync than min.insync.replicas",
        True,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1"
    ILLEGAL_GENERATION = 22, "the generation of the group has passed"
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        "the member's protocols have nothing in common with the group's",
    )
    INVALID_GROUP_ID = 24, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offset record would be too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "no permission for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "no permission for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "no permission for the cluster"
    INVALID_TIMESTAMP = 32, "the timestamp is outside the topic's limits"
    UNSUPPORTED_SASL_MECHANISM = 33, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "the request is out of order in the SASL exchange"
    UNSUPPORTED_VERSION = 35, "the broker does not serve this version"
    TOPIC_ALREADY_EXISTS = 36, "the topic exists already"
    INVALID_PARTITIONS = 37, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = (
        38,
        "the replication factor is below 1 or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, "the replica assignment is invalid"
    INVALID_CONFIG = 40, "the configuration is invalid"
    NOT_CONTROLLER = 41, "another broker is the controller", True
    INVALID_REQUEST = 42, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the message format does not support this"
    POLICY_VIOLATION = 44, "a policy of the cluster forbids it"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "the sequence number does not follow the last one"
    DUPLICATE_SEQUENCE_NUMBER = 46, "the sequence number was seen before"
    INVALID_PRODUCER_EPOCH = 47, "the producer's epoch has been replaced by a newer one"
    INVALID_TXN_STATE = 48, "the transaction's state does not allow it"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is outside the broker's limits"
    CONCURRENT_TRANSACTIONS = 51, "another operation on the transaction is still under way", True
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        "the transaction coordinator has been replaced by a newer one",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "no permission for the transactional id"
    SECURITY_DISABLED = 54, "the cluster runs without this security feature"
    OPERATION_NOT_ATTEMPTED = 55, "not attempted, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, "the disk of the log directory failed", True
    LOG_DIR_NOT_FOUND = 57, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, "the broker has no state of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, "the partition is being reassigned already"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are not enabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, "no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "the delegation token belongs to another principal"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "delegation tokens need an authenticated connection of another kind",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "no permission for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "the kind of principal is not supported"
    NON_EMPTY_GROUP = 68, "the group is not empty"
    GROUP_ID_NOT_FOUND = 69, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "no such fetch session", True
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session's epoch is not the expected one", True
    LISTENER_NOT_FOUND = 72, "the leader has no listener of the name that was asked through", True
    TOPIC_DELETION_DISABLED = 73, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, "the leader epoch is older than the broker's", True
    UNKNOWN_LEADER_EPOCH = 75, "the leader epoch is newer than the broker's", True
    UNSUPPORTED_COMPRESSION_TYPE = 76, "the compression type is not supported here"
    STALE_BROKER_EPOCH = 77, "the broker's registration has been replaced"
    OFFSET_NOT_AVAILABLE = 78, "the leader's high watermark has not caught up yet", True
    MEMBER_ID_REQUIRED = 79, "join again with the member id of this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", True
    GROUP_MAX_SIZE_REACHED = 81, "the group is full"
    FENCED_INSTANCE_ID = 82, "a newer member has taken over the group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "no replica is eligible as leader", True
    ELECTION_NOT_NEEDED = 84, "the partition has the wanted leader already", True
    NO_REASSIGNMENT_IN_PROGRESS = 85, "the partition is not being reassigned"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "the group has members that subscribe to the topic"
    INVALID_RECORD = 87, "a record is invalid"
    UNSTABLE_OFFSET_COMMIT = 88, "an open transaction holds offsets that are not stable yet", True
    THROTTLING_QUOTA_EXCEEDED = 89, "a quota is used up", True
    PRODUCER_FENCED = 90, "a newer producer has taken over the transactional id"
    RESOURCE_NOT_FOUND = 91, "no such resource"
    DUPLICATE_RESOURCE = 92, "the resource exists already"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, "the voter sets differ"
    INVALID_UPDATE_VERSION = 95, "the update's version is invalid"
    FEATURE_UPDATE_FAILED = 96, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, "no such snapshot"
    POSITION_OUT_OF_RANGE = 99, "the position is not in the snapshot"
    UNKNOWN_TOPIC_ID = 100, "this broker does not know the topic id", True
    DUPLICATE_BROKER_REGISTRATION = 101, "the broker id is registered already"
    BROKER_ID_NOT_REGISTERED = 102, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, "the log's topic id differs from the request's", True
    INCONSISTENT_CLUSTER_ID = 104, "the cluster id differs from the request's"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "the fetch session mixes topic names and ids", True
    INELIGIBLE_REPLICA = 107, "the replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, "a new leader has been elected meanwhile"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, "the member's epoch is fenced"
    UNRELEASED_INSTANCE_ID = 111, "the instance id is still in use"
    UNSUPPORTED_ASSIGNOR = 112, "the assignor or its version is not supported"
    STALE_MEMBER_EPOCH = 113, "the member's epoch is stale"
    MISMATCHED_ENDPOINT_TYPE = 114, "the endpoint is of another type"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "the type of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "no such controller id"
    UNKNOWN_SUBSCRIPTION_ID = 117, "no such telemetry subscription"
    TELEMETRY_TOO_LARGE = 118, "the telemetry is too large"
    INVALID_REGISTRATION = 119, "the registration is invalid"
    TRANSACTION_ABORTABLE = 120, "the transaction has to be aborted"
    INVALID_RECORD_STATE = 121, "the record's state does not allow it"
    SHARE_SESSION_NOT_FOUND = 122, "no such share session", True
    INVALID_SHARE_SESSION_EPOCH = 123, "the share session's epoch is not the expected one", True
    FENCED_STATE_EPOCH = 124, "the share state's epoch is fenced"
    INVALID_VOTER_KEY = 125, "the voter key is invalid"
    DUPLICATE_VOTER = 126, "the voter exists already"
    VOTER_NOT_FOUND = 127, "no such voter"
    INVALID_REGULAR_EXPRESSION = 128, "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, "the client has to bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, "the streams topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "the streams topology's epoch is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, "the streams topology is fenced"
    SHARE_SESSION_LIMIT_REACHED = 133, "the limit of share sessions is reached", True
    GROUP_DELETION_FAILED = 134, "the group could not be deleted"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        "the description of the streams topology could not be stored",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, "the controller id is not registered"


_BY_CODE: Final = {int(member): member for member in ErrorCode}


class KafkaError(Exception):
    """An error response to a request, not a fault; `message` is for humans and may be None."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message or self.code.text}"


class ProtocolError(Exception):
    """Bytes that violate the protocol, or values that it cannot carry. The connection is closed."""


class TooManyElements(Exception):
    """Raised by a codec for small messages; the sliced form takes the message (`compile.py`)."""


_DOWNGRADES: Final[tuple[tuple[int, int, ErrorCode, ErrorCode], ...]] = (
    # API key, last version that does not know the error, the error, its replacement. Produce never
    # answers with coordinator errors: NOT_ENOUGH_REPLICAS is retried without a refresh of metadata.
    (0, 32767, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
    (0, 32767, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
    (0, 32767, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
    (0, 32767, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
    # A producer may abort and continue (KIP-588); only its coordinator's own answers are fatal to
    # it.
    (0, 32767, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (0, 11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
    (0, 10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    # An unknown code would stop the consumer; with this one it looks for another leader.
    (1, 5, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (2, 4, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE),
    (3, 5, ErrorCode.LISTENER_NOT_FOUND, ErrorCode.LEADER_NOT_AVAILABLE),
    (8, 8, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION),
    (20, 2, ErrorCode.TOPIC_DELETION_DISABLED, ErrorCode.INVALID_REQUEST),
    # PRODUCER_FENCED came with KIP-588.
    (22, 3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (24, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (25, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (26, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    # The sender of markers regards a group coordinator as the leader of its partition.
    (27, 32767, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (27, 32767, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (27, 32767, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (28, 1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (28, 3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    (28, 5, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION),
    (28, 32767, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
)

_STAND_INS: Final = {(key, code): (last, stand_in) for key, last, code, stand_in in _DOWNGRADES}


def downgrade(api_key: int, version: int, code: ErrorCode) -> ErrorCode:
    """Return the error that a client understands for `code` in this version of an API."""
    last, stand_in = _STAND_INS.get((api_key, code), (-1, code))
    return stand_in if version <= last else code


ErrorsOf = Callable[[Any], Iterable[int]]

_ERROR_FIELDS: Final = ("error_code", "partition_error_code")
"""AddPartitionsToTxn has a different name. Fields of other names are no failures: CreateTopics has
one for configurations that it may not show."""


def errors_of(response: type[Any]) -> ErrorsOf:
    """Return a function that lists the error codes, other than 0, in a response of this class.

    It is compiled to plain loops, because it runs on every response that is sent.
    """
    each, encoded = "if {code}: codes.append({code})", "codes += {codes}"
    return _compiled(response, (each, encoded), " codes = []", " return codes")


def codes_of(response: type[Any]) -> ErrorsOf:
    """Return a generator function of all error codes in a response of this class, with 0."""
    return _compiled(response, ("yield {code}", "yield 0; yield from {codes}"), " yield 0", "")


def _compiled(response: type[Any], count: tuple[str, str], first: str, last: str) -> ErrorsOf:
    """`count` has the statement for an error code, and the one for the codes of `Encoded`."""
    names: dict[str, Any] = {"Encoded": Encoded}
    exec("\n".join(["def errors(a0):", first, *_loops(response, 0, *count), last]), names)
    errors: ErrorsOf = names["errors"]
    return errors


def _loops(cls: type[Message], depth: int, each: str, encoded: str) -> Iterator[str]:
    """Yield the lines that count the error codes of the object `a{depth}` and of its arrays."""
    indent = " " * (depth + 1)
    for field in fields_of(cls):
        item = None if field.type.item is None else field.type.item.struct
        if field.name in _ERROR_FIELDS:
            yield indent + each.format(code=f"a{depth}.{field.name}")
        elif item is not None and (inner := list(_loops(item, depth + 1, each, encoded))):
            element = f"a{depth + 1}"
            yield f"{indent}for {element} in a{depth}.{field.name} or ():"
            if item._schema is not None:
                yield f"{indent} if {element}.__class__ is Encoded:"
                yield f"{indent}  {encoded.format(codes=f'{element}.codes')}; continue"
            yield from inner
