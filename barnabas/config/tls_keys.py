"""Broker keys of TLS, under Kafka's names; each may be set for one listener.

A client has the same keys, so the table stands for itself as well.
"""

from typing import Final

from barnabas.config.declare import boolean, names, optional_string, password, string
from barnabas.config.key import Update
from barnabas.config.table import Table

_LISTENER: Final = Update.PER_BROKER
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")


class TlsKeys(Table):
    """Keys of certificates, of trust, and of the versions and ciphers of TLS."""

    ssl_allow_dn_changes = boolean(
        False,
        "Allow a reloaded certificate to have another distinguished name (KIP-978).",
    )
    ssl_allow_san_changes = boolean(
        False,
        "Allow a reloaded certificate to lack alternative names of the old one (KIP-978).",
    )
    ssl_cipher_suites = names(
        (),
        "Cipher suites, by Java's names. Empty: those that OpenSSL holds for strong. Suites of "
        "TLS 1.3 can only be named all three.",
    )
    ssl_client_auth = string(
        "none",
        "Whether clients present a certificate: `required`, `requested` or `none`.",
        one_of=("required", "requested", "none"),
    )
    ssl_crl_location = optional_string(
        "PEM file of revocation lists, one of each authority that signs certificates of peers; "
        "peers whose list is missing or out of date are refused. With the lists of all "
        "authorities in the trust store, which are root authorities then, intermediate ones are "
        "checked too. Unset: no check. A key of Barnabas that Kafka does not have."
    )
    ssl_enabled_protocols = names(
        PROTOCOLS, "Versions of TLS that are enabled.", one_of=PROTOCOLS, may_be_empty=False
    )
    ssl_endpoint_identification_algorithm = string(
        "https",
        "`https`: a client checks that the server's certificate names the host that it connects "
        "to. Empty: it does not.",
        one_of=("https", ""),
    )
    ssl_key_password = password(
        "Password of the private key in a PEM key store, or in ssl.keystore.key.", update=_LISTENER
    )
    ssl_keystore_certificate_chain = password(
        "Certificate chain in PEM, the own certificate first (KIP-651).", update=_LISTENER
    )
    ssl_keystore_key = password(
        "Private key in PEM; PKCS #8, encrypted or not (KIP-651).", update=_LISTENER
    )
    ssl_keystore_location = optional_string(
        "File of the key store: private key and certificate chain. It is read again after it "
        "has changed.",
        update=_LISTENER,
    )
    ssl_keystore_password = password("Password of a PKCS12 key store.", update=_LISTENER)
    ssl_keystore_type = string(
        "JKS",
        "Format of the key store. As in Java, a PKCS12 file is read under JKS too; a file in the "
        "old JKS format is refused.",
        one_of=STORE_TYPES,
        update=_LISTENER,
    )
    ssl_principal_mapping_rules = string(
        "DEFAULT",
        "Rules from the distinguished name of a client's certificate to the name of its "
        "principal, separated by commas: `RULE:pattern/replacement/` with L or U for the case "
        "behind it, or DEFAULT (KIP-371). Patterns are those of RE2.",
    )
    ssl_protocol = string(
        "TLSv1.3",
        "With TLSv1.2, connections to other brokers do not use TLS 1.3, even if it is enabled.",
        one_of=("TLSv1.2", "TLSv1.3", "TLS"),
    )
    ssl_truststore_certificates = password(
        "Certificates in PEM that sign those of peers (KIP-651).", update=_LISTENER
    )
    ssl_truststore_location = optional_string(
        "File of the trust store. Unset: the authorities that the system trusts. It is read again "
        "after it has changed.",
        update=_LISTENER,
    )
    ssl_truststore_password = password("Password of a PKCS12 trust store.", update=_LISTENER)
    ssl_truststore_type = string(
        "JKS",
        "Format of the trust store, as with ssl.keystore.type.",
        one_of=STORE_TYPES,
        update=_LISTENER,
    )
