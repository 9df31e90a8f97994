"""Broker keys of SASL, under Kafka's names. Those of `SaslKeys` may be set for one listener, and
for one of its mechanisms."""

from typing import Final

from barnabas.config.declare import (
    integer,
    long,
    names,
    optional_boolean,
    optional_integer,
    optional_string,
    password,
    string,
)
from barnabas.config.key import Update
from barnabas.config.table import Table

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The mechanisms that are served."""


class TokenKeys(Table):
    """Keys of OAUTHBEARER with which a client gets its token, and a broker one for other brokers.

    A client has the same keys, so the table stands for itself as well.
    """

    sasl_login_connect_timeout_ms = optional_integer(
        "Time to connect to the token endpoint. Unset: 10 s, where Kafka has no limit.", at_least=1
    )
    sasl_login_read_timeout_ms = optional_integer(
        "Time that the token endpoint may be silent. Unset: 10 s, where Kafka has no limit.",
        at_least=1,
    )
    sasl_login_retry_backoff_max_ms = long(
        10_000, "Time after which requests to the token endpoint are not repeated.", at_least=0
    )
    sasl_login_retry_backoff_ms = long(
        100,
        "Wait until a request to the token endpoint is repeated; it doubles with each further one.",
        at_least=0,
    )
    sasl_oauthbearer_client_credentials_client_id = optional_string(
        "Account at the token endpoint. Unset: `clientId` of sasl.jaas.config."
    )
    sasl_oauthbearer_client_credentials_client_secret = password(
        "Secret of the account at the token endpoint. Unset: `clientSecret` of sasl.jaas.config."
    )
    sasl_oauthbearer_scope = optional_string(
        "Scope that the token is asked for. Unset: `scope` of sasl.jaas.config."
    )
    sasl_oauthbearer_token_endpoint_url = optional_string(
        "Token endpoint, `https://` or `http://`, which is asked with the grant "
        "`client_credentials`; or `file:///PATH` of the token, which is read at each login. The "
        "options `ssl.*` of sasl.jaas.config say which authorities are trusted; without them the "
        "system's are. Redirections are not followed (KIP-768)."
    )


class SaslKeys(TokenKeys):
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
        update=Update.PER_BROKER,
    )
    sasl_jaas_config = password(
        "The login module of a mechanism. For PLAIN it has the users: "
        '`org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="...";`. '
        "Or it is `org.apache.kafka.common.security.scram.ScramLoginModule required;`: then the "
        "users of SCRAM log in with their passwords, and no password is stored. For OAUTHBEARER "
        "it has the options of HTTPS. On the inter-broker listener it also has the account of the "
        "broker at others. "
        "Without a prefix it is for all listeners, where Kafka ignores it.",
        update=Update.PER_BROKER,
    )
    sasl_oauthbearer_allow_unverified_audience = optional_boolean(
        "Whether tokens for any audience are taken if `sasl.oauthbearer.expected.audience` is "
        "empty. If false, the listener does not start then, as in Kafka 4.4. Unset: tokens without "
        "an audience are taken, with a warning at the start; the next release takes it for false."
    )
    sasl_oauthbearer_allow_unverified_issuer = optional_boolean(
        "Whether tokens of any issuer whose key is in the key set are taken if "
        "`sasl.oauthbearer.expected.issuer` is unset. If false, the listener does not start then, "
        "as in Kafka 4.4. Unset: they are taken, with a warning at the start; the next release "
        "takes it for false."
    )
    sasl_oauthbearer_clock_skew_seconds = integer(
        30,
        "Seconds by which the clock of the issuer of tokens may differ from the broker's.",
        at_least=0,
    )
    sasl_oauthbearer_expected_audience = names(
        (),
        "Audiences of which a token must name one. Empty: see "
        "`sasl.oauthbearer.allow.unverified.audience`.",
    )
    sasl_oauthbearer_expected_issuer = optional_string(
        "Issuer that a token must name. Unset: see `sasl.oauthbearer.allow.unverified.issuer`."
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
        "Key set (JWKS) of the issuer of tokens: `https://` or `file:///`. The options `ssl.*` of "
        "sasl.jaas.config say which authorities are trusted; without them the system's are. "
        "Redirections are not followed (KIP-768)."
    )
    sasl_oauthbearer_scope_claim_name = string("scope", "Claim with the scopes of a token.")
    sasl_oauthbearer_sub_claim_name = string("sub", "Claim that is the name of the principal.")

    def unverified_claims(self) -> list[tuple[str, bool | None]]:
        """Return the claims of tokens that no key expects, and whether that is allowed; None if
        the configuration does not say it."""
        allowed_audience = self.sasl_oauthbearer_allow_unverified_audience
        allowed_issuer = self.sasl_oauthbearer_allow_unverified_issuer
        claims = [
            ("audience", self.sasl_oauthbearer_expected_audience, allowed_audience),
            ("issuer", self.sasl_oauthbearer_expected_issuer, allowed_issuer),
        ]
        return [(claim, allowed) for claim, expected, allowed in claims if not expected]


class DelegationTokenKeys(Table):
    """Keys of delegation tokens (KIP-48), for the broker as a whole."""

    delegation_token_expiry_check_interval_ms = long(
        3_600_000, "Interval in which the controller deletes expired tokens.", at_least=1
    )
    delegation_token_expiry_time_ms = long(
        86_400_000, "Lifetime of a token until it has to be renewed.", at_least=1
    )
    delegation_token_max_lifetime_ms = long(
        7 * 86_400_000, "Longest lifetime of a token, renewed or not.", at_least=1
    )
    delegation_token_secret_key = password(
        "Secret from which the HMACs of tokens are made: the same on all brokers. Without it there "
        "are no tokens. `delegation.token.master.key` of Kafka 3.9 is an alias."
    )
