"""Broker keys of SASL, under Kafka's names; each may be set for one listener, and for one of its
mechanisms."""

from typing import Final

from barnabas.config.declare import long, names, password
from barnabas.config.table import Table

MECHANISMS: Final = ("PLAIN",)
"""The mechanisms that are served."""


class SaslKeys(Table):
    """Keys of mechanisms, of their users, and of sessions."""

    connections_max_reauth_ms = long(
        0,
        "Time after which a client has to authenticate again; a connection that does not is "
        "closed at its next request (KIP-368). 0: no limit.",
    )
    sasl_enabled_mechanisms = names(
        ("GSSAPI",),
        "Mechanisms of the listeners with SASL: PLAIN. GSSAPI, the default of Kafka, is not "
        "supported, so a listener with SASL needs this key.",
        may_be_empty=False,
    )
    sasl_jaas_config = password(
        "The login module of a mechanism. For PLAIN it has the users: "
        '`org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="...";`. '
        "Without a prefix it is for all listeners, where Kafka ignores it.",
    )
