"""Passwords under a secret, in the text that Kafka 3.9 keeps in ZooKeeper (KIP-226).

`cryptography` and `hashlib` are imported at the first use, which therefore belongs into a thread.
So does every other use, because a key is derived in some thousand iterations.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.config.password_keys import CIPHERS, KEY_BITS, KEY_FACTORIES

_MOST_ITERATIONS: Final = 10_000_000
"""Iterations of a stored text that are carried out: some seconds."""
_SALT_BYTES: Final = 256
_BLOCK_BITS: Final = 128
_IV_BYTES: Final = {CIPHERS[0]: 16, CIPHERS[1]: 12}
_TAG_BITS: Final = "128"
_ENCRYPTED: Final = "encryptedPassword"


class UndecodablePassword(ValueError):
    """A stored text that is damaged, or was encrypted under another secret."""


class Encoding(NamedTuple):
    """The algorithms of new texts; each text names its own."""

    cipher: str
    key_factory: str
    key_bits: int
    iterations: int


def is_encoded(text: str) -> bool:
    """Return whether a stored value is an encrypted password."""
    return _ENCRYPTED in _parameters(text)


def encode(
    password: str, secret: str, encoding: Encoding, random_bytes: Callable[[int], bytes]
) -> str:
    """Encrypt a password."""
    salt = random_bytes(_SALT_BYTES)
    iv = random_bytes(_IV_BYTES[encoding.cipher])
    key = _key(secret, salt, encoding)
    parameters = {
        "keyFactoryAlgorithm": encoding.key_factory,
        "cipherAlgorithm": encoding.cipher,
        "keyLength": str(encoding.key_bits),
        "salt": b64encode(salt).decode(),
        "iterations": str(encoding.iterations),
        _ENCRYPTED: b64encode(_encrypted(encoding.cipher, key, iv, password.encode())).decode(),
        "passwordLength": str(_java_length(password)),
        "initializationVector": b64encode(iv).decode(),
    }
    if encoding.cipher == CIPHERS[1]:
        parameters["authenticationTagLength"] = _TAG_BITS
    return ",".join(f"{name}:{value}" for name, value in parameters.items())


def decode(text: str, secret: str) -> str:
    """Decrypt a stored text; raise UndecodablePassword."""
    parameters = _parameters(text)
    try:
        encoding = Encoding(
            parameters["cipherAlgorithm"],
            parameters.get("keyFactoryAlgorithm", KEY_FACTORIES[0]),
            int(parameters["keyLength"]),
            int(parameters["iterations"]),
        )
        if (
            encoding.cipher not in CIPHERS
            or encoding.key_factory not in KEY_FACTORIES
            or encoding.key_bits not in KEY_BITS
            or not 1 <= encoding.iterations <= _MOST_ITERATIONS
            or parameters.get("authenticationTagLength", _TAG_BITS) != _TAG_BITS
        ):
            raise UndecodablePassword("it was encrypted in a way that is not supported here")
        key = _key(secret, _bytes(parameters["salt"]), encoding)
        iv, encrypted = _bytes(parameters["initializationVector"]), _bytes(parameters[_ENCRYPTED])
        password = _decrypted(encoding.cipher, key, iv, encrypted).decode()
        length = int(parameters["passwordLength"])
    except (KeyError, ValueError) as error:
        if isinstance(error, UndecodablePassword):
            raise
        raise UndecodablePassword("it is damaged, or was encrypted under another secret") from None
    # Under a wrong secret the padding is right once in 256 times.
    if _java_length(password) != length:
        raise UndecodablePassword("it is damaged, or was encrypted under another secret")
    return password


def _parameters(text: str) -> dict[str, str]:
    parts = (part.partition(":") for part in text.split(","))
    return {name: value for name, colon, value in parts if colon}


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


def _java_length(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2


def _key(secret: str, salt: bytes, encoding: Encoding) -> bytes:
    import hashlib

    digest = encoding.key_factory.removeprefix("PBKDF2WithHmac").lower()
    size = encoding.key_bits // 8
    return hashlib.pbkdf2_hmac(digest, secret.encode(), salt, encoding.iterations, size)


def _encrypted(cipher: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == CIPHERS[1]:
        return AESGCM(key).encrypt(iv, data, None)
    padder = PKCS7(_BLOCK_BITS).padder()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    return encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()


def _decrypted(cipher: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == CIPHERS[1]:
        try:
            return AESGCM(key).decrypt(iv, data, None)
        except InvalidTag:
            raise ValueError from None
    decryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    unpadder = PKCS7(_BLOCK_BITS).unpadder()
    padded = decryptor.update(data) + decryptor.finalize()
    return unpadder.update(padded) + unpadder.finalize()
