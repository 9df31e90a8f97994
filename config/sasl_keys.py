"""Broker keys of SASL, under Kafka's names; each may be set for one listener, and for one of its
mechanisms."""

from typing import Final

from barnabas.config.declare import integer, long, names, optional_string, password, string
from barnabas.config.table import Table

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
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
        f"Mechanisms of the listeners with SASL: {', '.join(MECHANISMS)}. GSSAPI, the default of "
        "Kafka, is not supported, so a listener with SASL needs this key.",
        may_be_empty=False,
    )
    sasl_jaas_config = password(
        "The login module of a mechanism. For PLAIN it has the users: "
        '`org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="...";`. '
        "Or it is `org.apache.kafka.common.security.scram.ScramLoginModule required;`: then the "
        "users of SCRAM log in with their passwords, and no password is stored. "
        "Without a prefix it is for all listeners, where Kafka ignores it.",
    )
    sasl_oauthbearer_clock_skew_seconds = integer(
        30,
        "Seconds by which the clock of the issuer of tokens may differ from the broker's.",
        at_least=0,
    )
    sasl_oauthbearer_expected_audience = names(
        (),
        "Audiences of which a token must name one. Empty: a token must not have an audience.",
    )
    sasl_oauthbearer_expected_issuer = optional_string(
        "Issuer that a token must name. Unset: any, whose key is in the key set."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(
        3_600_000, "Interval in which the key set is fetched again.", at_least=1000
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        10_000,
        "Least time between two fetches because of tokens with an unknown key, and the longest "
        "wait after failed ones.",
        at_least=1,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        100, "Wait after a failed fetch; it doubles with each further one.", at_least=1
    )
    sasl_oauthbearer_jwks_endpoint_url = optional_string(
        "Key set (JWKS) of the issuer of tokens: `https://` or `file:///`. The system's "
        "authorities are trusted, and redirections are not followed (KIP-768)."
    )
    sasl_oauthbearer_scope_claim_name = string("scope", "Claim with the scopes of a token.")
    sasl_oauthbearer_sub_claim_name = string("sub", "Claim that is the name of the principal.")
