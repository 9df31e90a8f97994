"""Records that a TLS library never sends: a client that encrypts them itself after its handshake.

It takes the keys from OpenSSL's key log, and knows AES-GCM only.
"""

import ssl
from pathlib import Path

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

ALERT, HANDSHAKE, DATA = 21, 22, 23
"""Types of records."""
CLOSE_NOTIFY = bytes([1, 0])
"""The alert that marks the end."""
_TLS_1_2 = b"\x03\x03"


class RecordClient:
    """The client's side of one connection, without a socket."""

    def __init__(self, authority: str, directory: Path, version: ssl.TLSVersion) -> None:
        """`authority` is the certificate that it trusts, in PEM; `directory` takes the key log."""
        self._log = directory / f"keys-{id(self)}"
        context = ssl.create_default_context(cadata=authority)
        context.minimum_version = context.maximum_version = version
        context.set_ciphers("ECDHE+AESGCM")
        context.keylog_filename = str(self._log)
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._sent, server_hostname="localhost")
        self._hello = b""
        self._sequence = 0
        self.done = False
        """Whether the handshake is done; then records can be made."""

    def shake_hands(self, received: bytes = b"") -> bytes:
        """Take bytes of the server; return the next ones for it."""
        self._hello = self._hello or received
        self._received.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._sent.read()
        self.done = True
        self._derive_keys()
        return self._sent.read()

    def ends(self, received: bytes) -> bool:
        """Take bytes of the server; return whether the last ones are its mark of the end."""
        self._received.write(received)
        try:
            return not self._tls.read()
        except ssl.SSLWantReadError:
            return False

    def key_update(self, *, requested: bool = True) -> bytes:
        """Return a KeyUpdate, which the server answers if `requested`."""
        record = self.record(HANDSHAKE, bytes([24, 0, 0, 1, requested]))
        self._use(self._expand(self._secret, "traffic upd", self._hash.digest_size))
        return record

    def renegotiation(self) -> bytes:
        """Return the beginning of another handshake of TLS 1.2."""
        return self.record(HANDSHAKE, bytes([1, 0, 0, 0]))

    def record(self, kind: int, content: bytes) -> bytes:
        """Return a record."""
        number = self._sequence.to_bytes(8, "big")
        self._sequence += 1
        if self._tls.version() == "TLSv1.2":
            head = bytes([kind]) + _TLS_1_2
            sealed = self._cipher.encrypt(
                self._iv + number, content, number + head + len(content).to_bytes(2, "big")
            )
            return head + (len(number + sealed)).to_bytes(2, "big") + number + sealed
        head = bytes([DATA]) + _TLS_1_2 + (len(content) + 1 + 16).to_bytes(2, "big")
        nonce = int.from_bytes(self._iv, "big") ^ int.from_bytes(number, "big")
        return head + self._cipher.encrypt(nonce.to_bytes(12, "big"), content + bytes([kind]), head)

    def _derive_keys(self) -> None:
        name, _, bits = self._tls.cipher() or ("", "", 0)
        self._key_size = bits // 8
        self._hash = hashes.SHA384() if name.endswith("SHA384") else hashes.SHA256()
        words = [line.split() for line in self._log.read_text().splitlines()]
        secrets = {
            label: (random, secret) for label, random, secret in (w for w in words if len(w) == 3)
        }
        if self._tls.version() == "TLSv1.2":
            random, master = map(bytes.fromhex, secrets["CLIENT_RANDOM"])
            # Behind the headers of the record and the message, and the version.
            seed = b"key expansion" + self._hello[11:43] + random
            keys = self._of_1_2(master, seed, 2 * self._key_size + 8)
            self._cipher = AESGCM(keys[: self._key_size])
            self._iv = keys[2 * self._key_size :][:4]
            # The first one is the client's Finished.
            self._sequence = 1
        else:
            self._use(bytes.fromhex(secrets["CLIENT_TRAFFIC_SECRET_0"][1]))

    def _use(self, secret: bytes) -> None:
        """Use a traffic secret of TLS 1.3 from now on."""
        self._secret, self._sequence = secret, 0
        self._cipher = AESGCM(self._expand(secret, "key", self._key_size))
        self._iv = self._expand(secret, "iv", 12)

    def _expand(self, secret: bytes, label: str, size: int) -> bytes:
        name = b"tls13 " + label.encode()
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(self._hash, size, info).derive(secret)

    def _of_1_2(self, master: bytes, seed: bytes, size: int) -> bytes:
        made, link = b"", seed
        while len(made) < size:
            link = self._hmac(master, link)
            made += self._hmac(master, link + seed)
        return made

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        code = hmac.HMAC(key, self._hash)
        code.update(data)
        return code.finalize()
