"""The error texts of the command line: one line with the failure and what to do about it."""

import click

from barnabas.cli.peers import WrongPeer
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError

_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "see `barnabas topics list` or `topics describe`",
    ErrorCode.GROUP_ID_NOT_FOUND: "see `barnabas groups list`",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this command or option",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "check user and password in --command-config",
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name on the brokers",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "set sasl.mechanism in --command-config",
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes or send less",
}


def explain(error: Exception) -> str:
    """Return the line for `error`."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, KafkaError):
        text = f"{error.code.name}: {error.message or error.code.text}"
        advice = _ADVICE.get(error.code)
        return f"{text} ({advice})" if advice else text
    if isinstance(error, WrongPeer):
        return str(error)
    if isinstance(error, BrokerUnreachable):
        return f"{error}; is the broker running, and does it need --command-config?"
    if isinstance(error, TimeoutError):
        return str(error) or "the broker did not answer in time; try a longer --timeout"
    if isinstance(error, ProtocolError):
        return f"the broker sent an invalid response: {error}"
    if isinstance(error, BlockingIOError):
        return f"{error.filename} is in use by another broker; stop it, or give another --data"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError | ValueError):
        return str(error)
    name = type(error).__name__
    return f"unexpected {name}: {error} (please report it, with BARNABAS_TRACEBACK=1 set)"
