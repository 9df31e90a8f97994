"""Subscriptions by regular expression, as Kafka 4.4 takes them (KIP-848): RE2, whole names."""

from typing import Final

from barnabas.coordinator import expressions
from barnabas.coordinator.expressions import Expression, ExpressionError, NotInstalledError
from barnabas.protocol.errors import ErrorCode, KafkaError

__all__ = ["Expression", "compiled"]

_SHOWN: Final = 200
"""The letters of an expression that an error repeats."""


def compiled(text: str) -> Expression:
    """Compile a subscription. Raises INVALID_REGULAR_EXPRESSION, with Kafka's text.

    So it does if google-re2 is not installed: with UNSUPPORTED_VERSION Kafka's consumers would
    report that the broker does not know their protocol.
    """
    try:
        return expressions.compiled(text)
    except ExpressionError as error:
        reason = f"is not a valid regular expression: {error}."
    except NotInstalledError:
        reason = expressions.NOT_INSTALLED
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    raise KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{shown}` {reason}"
    )
