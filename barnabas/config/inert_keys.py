"""Keys that are stored and have no effect."""

from typing import Final

from barnabas.config.declare import boolean, double, long, names, optional_string, short, string
from barnabas.config.key import Update
from barnabas.config.table import Table

_KERBEROS: Final = "Has no effect: GSSAPI is not supported."
_REFRESH: Final = "Has no effect: a token is fetched when a login needs one."


_GROUPS: Final = "Has no effect: only classic groups are served."
_TIERED: Final = "Has no effect: there is no tiered storage (KIP-405)."
_SHARE_GROUPS: Final = "Has no effect: share groups come later (KIP-1191)."


class InertTopicKeys(Table):
    """Keys of topics that are stored, and mean nothing."""

    errors_deadletterqueue_group_enable = boolean(False, _SHARE_GROUPS)
    remote_copy_lag_bytes = long(-1, _TIERED, at_least=-1)
    remote_copy_lag_ms = long(0, _TIERED, at_least=-1)


class InertTopicDefaults(Table):
    """Keys of a broker that topics inherit, and that mean nothing to the broker and to them."""

    log_remote_copy_lag_bytes = long(-1, _TIERED, at_least=-1, update=Update.CLUSTER_WIDE)
    log_remote_copy_lag_ms = long(0, _TIERED, at_least=-1, update=Update.CLUSTER_WIDE)


class InertKeys(Table):
    """Keys without effect that tools for Kafka set by AlterConfigs, and that are stored for them.

    In a file, those of SASL are refused, and the others are named in the warning about keys without
    effect.
    """

    errors_deadletterqueue_auto_create_topics_enable = boolean(
        False, _SHARE_GROUPS, update=Update.CLUSTER_WIDE
    )
    errors_deadletterqueue_topic_name_prefix = string(
        "dlq.", _SHARE_GROUPS, update=Update.CLUSTER_WIDE
    )
    group_consumer_assignor_offload_enable = boolean(True, _GROUPS, update=Update.CLUSTER_WIDE)
    group_share_assignor_offload_enable = boolean(True, _GROUPS, update=Update.CLUSTER_WIDE)
    group_streams_assignor_offload_enable = boolean(True, _GROUPS, update=Update.CLUSTER_WIDE)

    sasl_kerberos_kinit_cmd = string("/usr/bin/kinit", _KERBEROS, update=Update.PER_BROKER)
    sasl_kerberos_min_time_before_relogin = long(60_000, _KERBEROS, update=Update.PER_BROKER)
    sasl_kerberos_principal_to_local_rules = names(
        ("DEFAULT",), _KERBEROS, update=Update.PER_BROKER
    )
    sasl_kerberos_service_name = optional_string(_KERBEROS, update=Update.PER_BROKER)
    sasl_kerberos_ticket_renew_jitter = double(
        0.05, _KERBEROS, at_least=0, update=Update.PER_BROKER
    )
    sasl_kerberos_ticket_renew_window_factor = double(
        0.8, _KERBEROS, at_least=0, update=Update.PER_BROKER
    )
    sasl_login_refresh_buffer_seconds = short(300, _REFRESH, at_least=0, update=Update.PER_BROKER)
    sasl_login_refresh_min_period_seconds = short(
        60, _REFRESH, at_least=0, update=Update.PER_BROKER
    )
    sasl_login_refresh_window_factor = double(
        0.8, _REFRESH, at_least=0.5, at_most=1, update=Update.PER_BROKER
    )
    sasl_login_refresh_window_jitter = double(
        0.05, _REFRESH, at_least=0, at_most=0.25, update=Update.PER_BROKER
    )
