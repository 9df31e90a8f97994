"""The rules for topic names, and the names of internal topics; pure."""

import re

from barnabas.protocol.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})
"""Kafka's internal topics, including those without a coordinator here: a client must not write
records that a later coordinator would replay."""
COMPACTED_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""The topics from which coordinators load their state: the newest record of each key must stay."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for an illegal topic name."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def refuse_internal(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for topics that only brokers create and delete."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is kept by the brokers themselves."
        )


def why_unknown(name: str) -> ErrorCode:
    """Return the error for a topic that does not exist: unknown, or its name is illegal."""
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
