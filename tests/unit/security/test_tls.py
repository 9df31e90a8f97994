"""Contexts from `ssl.*` keys, joined by handshakes in memory."""

import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas.config.key import ConfigError
from barnabas.config.tls_keys import TlsKeys
from barnabas.security.tls import SUITES, client_tls, files_of, server_tls
from tests.support.certificates import Authority, Stores


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def keys(**texts: str) -> TlsKeys:
    return keys_of({name.replace("_", "."): text for name, text in texts.items()})


def keys_of(properties: dict[str, str]) -> TlsKeys:
    return TlsKeys(**TlsKeys.parse(properties))


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """Return the server's side after a handshake; raise SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = server.wrap_bio(up, down, server_side=True)
    connected = client.wrap_bio(down, up, server_hostname=host)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in (connected, served):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    # Under TLS 1.3 the server judges the client's certificate behind the client's handshake.
    served.write(b"x")
    assert connected.read() == b"x"
    return served


def test_server_and_client_shake_hands_with_pem_files(stores: Stores) -> None:
    server, client = server_tls(keys_of(stores.identity())), client_tls(keys_of(stores.trust()))
    assert shake(server.context, client.context).version() == "TLSv1.3"
    assert server.certificate is not None
    assert server.certificate.subject == "CN=localhost"


def test_client_with_default_truststore_refuses(stores: Stores) -> None:
    server = server_tls(keys_of(stores.identity()))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server.context, client_tls(keys()).context)


def test_client_without_verification_accepts_any_certificate(stores: Stores) -> None:
    server = server_tls(keys_of(stores.identity()))
    shake(server.context, client_tls(keys(), verify=False).context, host="elsewhere")


def test_inline_keystore_with_encrypted_key(stores: Stores) -> None:
    issued = stores.authority.issue()
    inline = keys(
        ssl_keystore_type="PEM",
        ssl_keystore_key=issued.key_pem("secret"),
        ssl_keystore_certificate_chain=issued.chain_pem.replace("\n", " "),
        ssl_key_password="secret",
    )
    trust = keys(ssl_truststore_type="PEM", ssl_truststore_certificates=stores.authority.pem)
    shake(server_tls(inline).context, client_tls(trust).context)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_stores(stores: Stores, kind: str) -> None:
    own, trusted = stores.directory / "own.p12", stores.directory / "trust.p12"
    own.write_bytes(stores.authority.issue().pkcs12("secret"))
    trusted.write_bytes(stores.authority.truststore("other"))
    server = keys(
        ssl_keystore_type=kind, ssl_keystore_location=str(own), ssl_keystore_password="secret"
    )
    client = keys(
        ssl_truststore_type=kind,
        ssl_truststore_location=str(trusted),
        ssl_truststore_password="other",
    )
    shake(server_tls(server).context, client_tls(client).context)
    assert files_of(server) == [str(own)]


def test_pkcs12_of_keytool_is_read_and_jks_names_the_conversion(stores: Stores) -> None:
    base = ["keytool", "-genkeypair", "-alias", "a", "-keyalg", "EC", "-storepass", "secret"]
    base += ["-dname", "CN=localhost", "-ext", "san=dns:localhost"]
    p12, jks = stores.directory / "own.p12", stores.directory / "own.jks"
    subprocess.run([*base, "-keystore", p12], check=True, capture_output=True)
    subprocess.run(
        [*base, "-keystore", jks, "-storetype", "JKS", "-keypass", "secret"],
        check=True,
        capture_output=True,
    )
    given = keys(ssl_keystore_location=str(p12), ssl_keystore_password="secret")
    server = server_tls(given)
    trust = keys(ssl_truststore_location=str(p12), ssl_truststore_password="secret")
    shake(server.context, client_tls(trust).context)
    with pytest.raises(ConfigError, match=r"keytool -importkeystore -srckeystore \S+own\.jks"):
        server_tls(keys(ssl_keystore_location=str(jks), ssl_keystore_password="secret"))


def _wrong_host(stores: Stores) -> tuple[TlsKeys, TlsKeys]:
    issued = stores.authority.issue("elsewhere", hosts=("elsewhere",))
    return keys_of(stores.identity(issued)), keys_of(stores.trust())


def _expired(stores: Stores) -> tuple[TlsKeys, TlsKeys]:
    issued = stores.authority.issue(begins=timedelta(days=-2), days=1)
    return keys_of(stores.identity(issued)), keys_of(stores.trust())


def _not_yet_valid(stores: Stores) -> tuple[TlsKeys, TlsKeys]:
    issued = stores.authority.issue(begins=timedelta(days=1), days=1)
    return keys_of(stores.identity(issued)), keys_of(stores.trust())


def _wrong_authority(stores: Stores) -> tuple[TlsKeys, TlsKeys]:
    return keys_of(stores.identity(Authority().issue())), keys_of(stores.trust())


def _old_only(stores: Stores) -> tuple[TlsKeys, TlsKeys]:
    server = stores.identity() | {"ssl.enabled.protocols": "TLSv1.3"}
    return keys_of(server), keys_of(stores.trust() | {"ssl.enabled.protocols": "TLSv1.2"})


def _no_certificate(stores: Stores) -> tuple[TlsKeys, TlsKeys]:
    server = stores.identity() | stores.trust() | {"ssl.client.auth": "required"}
    return keys_of(server), keys_of(stores.trust())


def _stranger(stores: Stores) -> tuple[TlsKeys, TlsKeys]:
    server = stores.identity() | stores.trust() | {"ssl.client.auth": "requested"}
    client = stores.trust() | stores.identity(Authority("other").issue("mallory"), name="client")
    return keys_of(server), keys_of(client)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (_wrong_host, "Hostname mismatch"),
        (_expired, "certificate has expired"),
        (_not_yet_valid, "certificate is not yet valid"),
        (_wrong_authority, "certificate verify failed"),
        (_old_only, "unsupported protocol"),
        (_no_certificate, "(?i)peer did not return a certificate"),
        (_stranger, "unable to get local issuer"),
    ],
)
def test_handshake_is_refused(stores: Stores, pair: object, reason: str) -> None:
    assert callable(pair)
    server, client = pair(stores)
    with pytest.raises(ssl.SSLError, match=reason):
        shake(server_tls(server).context, client_tls(client).context)


def test_host_is_not_checked_without_endpoint_identification(stores: Stores) -> None:
    server, _ = _wrong_host(stores)
    client = keys_of(stores.trust() | {"ssl.endpoint.identification.algorithm": ""})
    shake(server_tls(server).context, client_tls(client).context)


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_server_learns_the_certificate_of_a_client(stores: Stores, auth: str) -> None:
    server = keys_of(stores.identity() | stores.trust() | {"ssl.client.auth": auth})
    alice = stores.authority.issue("alice")
    client = keys_of(stores.trust() | stores.identity(alice, name="alice"))
    served = shake(server_tls(server).context, client_tls(client).context)
    assert served.getpeercert(binary_form=True) == alice.certificate.public_bytes(Encoding.DER)


def test_requested_certificate_may_be_missing(stores: Stores) -> None:
    server = keys_of(stores.identity() | stores.trust() | {"ssl.client.auth": "requested"})
    served = shake(server_tls(server).context, client_tls(keys_of(stores.trust())).context)
    assert served.getpeercert(binary_form=True) is None


def test_revoked_certificate_is_refused(stores: Stores) -> None:
    bad, good = stores.authority.issue("bad"), stores.authority.issue("good")
    lists = stores.write("crl.pem", stores.authority.revocation_list(bad))
    server = server_tls(
        keys_of(
            stores.identity()
            | stores.trust()
            | {"ssl.client.auth": "required", "ssl.crl.location": lists}
        )
    )
    shake(server.context, client_tls(keys_of(stores.trust() | stores.identity(good))).context)
    client = client_tls(keys_of(stores.trust() | stores.identity(bad)))
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        shake(server.context, client.context)


@pytest.mark.parametrize("roots", ["all with a list", "one without"])
@pytest.mark.parametrize("revoked", [True, False])
def test_intermediate_authority_is_checked_if_all_roots_have_lists(
    stores: Stores, revoked: bool, roots: str
) -> None:
    root, other = stores.authority, Authority("other")
    between = Authority("between", above=root)
    alice = between.issue("alice")
    lists = root.revocation_list(*[between] * revoked) + between.revocation_list()
    trust = root.pem
    if roots == "one without":
        trust += other.pem
    server = server_tls(
        keys_of(
            stores.identity()
            | {"ssl.truststore.type": "PEM", "ssl.client.auth": "required"}
            | {"ssl.truststore.location": stores.write("roots.pem", trust)}
            | {"ssl.crl.location": stores.write("crl.pem", lists)}
        )
    )
    own = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": stores.write("alice.pem", alice.pem + between.pem),
    }
    client = client_tls(keys_of(stores.trust() | own))
    if revoked and roots == "all with a list":
        with pytest.raises(ssl.SSLError, match="certificate revoked"):
            shake(server.context, client.context)
    else:
        shake(server.context, client.context)


def test_intermediate_authority_may_be_an_anchor(stores: Stores) -> None:
    between = Authority("between", above=stores.authority)
    bad, good = between.issue("bad"), between.issue("good")
    lists = between.revocation_list(bad) + stores.authority.revocation_list()
    server = server_tls(
        keys_of(
            stores.identity()
            | {"ssl.truststore.type": "PEM", "ssl.client.auth": "required"}
            | {"ssl.truststore.location": stores.write("anchor.pem", between.pem)}
            | {"ssl.crl.location": stores.write("crl.pem", lists)}
        )
    )
    shake(server.context, client_tls(keys_of(stores.trust() | stores.identity(good))).context)
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        shake(server.context, client_tls(keys_of(stores.trust() | stores.identity(bad))).context)


def test_cipher_suites_have_javas_names(stores: Stores) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    server = server_tls(keys_of(stores.identity() | {"ssl.cipher.suites": suite}))
    served = shake(server.context, client_tls(keys_of(stores.trust())).context)
    assert served.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)


RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize("suite", SUITES)
def test_peers_shake_hands_with_each_suite_that_is_accepted(stores: Stores, suite: str) -> None:
    issued = stores.authority.issue(key=None if "ECDSA" in suite else RSA)
    named = {"ssl.cipher.suites": suite}
    server = server_tls(keys_of(stores.identity(issued) | named))
    served = shake(server.context, client_tls(keys_of(stores.trust() | named)).context)
    cipher = served.cipher()
    assert cipher is not None
    assert cipher[0] == SUITES[suite]


def test_protocol_1_2_keeps_a_client_from_1_3(stores: Stores) -> None:
    client = client_tls(keys_of(stores.trust() | {"ssl.protocol": "TLSv1.2"}))
    served = shake(server_tls(keys_of(stores.identity())).context, client.context)
    assert served.version() == "TLSv1.2"


ONE, OTHER = Authority().issue(), Authority().issue()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs a key store"),
        ({"ssl_keystore_location": "/none", "ssl_keystore_type": "PEM"}, "/none cannot be read"),
        ({"ssl_keystore_location": "/none"}, "key store password is not specified"),
        ({"ssl_keystore_password": "x"}, "key store is not specified"),
        ({"ssl_keystore_key": "x"}, "only for PEM, but key store type is JKS"),
        ({"ssl_keystore_type": "PEM", "ssl_keystore_key": "x"}, "chain is not specified"),
        (
            {"ssl_keystore_type": "PEM", "ssl_keystore_certificate_chain": "x"},
            "private key is not specified",
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": "x",
                "ssl_keystore_certificate_chain": "x",
            },
            "one private key in PEM is needed, but there are 0",
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": ONE.key_pem(),
                "ssl_keystore_certificate_chain": OTHER.chain_pem,
            },
            "does not belong to its first certificate",
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": ONE.key_pem("secret"),
                "ssl_keystore_certificate_chain": ONE.chain_pem,
            },
            "encrypted, but ssl.key.password is not specified",
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": ONE.key_pem("secret"),
                "ssl_keystore_certificate_chain": ONE.chain_pem,
                "ssl_key_password": "wrong",
            },
            "cannot be read with ssl.key.password",
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": ONE.key_pem(),
                "ssl_keystore_certificate_chain": ONE.chain_pem,
                "ssl_cipher_suites": "TLS_FAST",
            },
            "Unsupported cipher suites: TLS_FAST",
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": ONE.key_pem(),
                "ssl_keystore_certificate_chain": ONE.chain_pem,
                "ssl_cipher_suites": "TLS_AES_128_GCM_SHA256",
            },
            "cannot choose among the suites of TLS 1.3",
        ),
    ],
)
def test_useless_keystore_is_refused_with_its_reason(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        server_tls(keys(**given))
    assert "secret" not in str(refused.value)


def test_wrong_password_of_pkcs12_is_refused_without_showing_it(stores: Stores) -> None:
    path = stores.directory / "own.p12"
    path.write_bytes(stores.authority.issue().pkcs12("secret"))
    given = keys(ssl_keystore_location=str(path), ssl_keystore_password="wr0ng")
    with pytest.raises(ConfigError, match="cannot be read as PKCS12") as refused:
        server_tls(given)
    assert "wr0ng" not in str(refused.value)


def test_truststore_without_certificate_is_refused(stores: Stores) -> None:
    path = stores.write("empty.pem", "nothing")
    with pytest.raises(ConfigError, match="no certificate is in it"):
        client_tls(keys(ssl_truststore_type="PEM", ssl_truststore_location=path))
