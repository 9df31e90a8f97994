"""Encrypted passwords: those of Kafka 3.9.1's tools are read, and nothing else is believed."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.config.password_keys import CIPHERS, KEY_BITS, KEY_FACTORIES
from barnabas.security.password_encoder import (
    Encoding,
    UndecodablePassword,
    decode,
    encode,
    is_encoded,
)

SECRET = "secret ü"
PASSWORD = "pass \N{KEY},:=\n"
CBC = (
    "initializationVector:mpOuT5fCsajCfCYDpH316A==,keyLength:128,salt:MBREARWchct0oXF"
    "P1M6+0tzPI3EsM07b6ZpHY1j8w+AgVQfC81wPwK9jTcdjshAyX3khZd4ZTa5hKeYNUtsOsUP0ynT+Cw/"
    "AB31ycxA5OHLaA55naZVYO+e9kGFxdPIoi6WWvDmWViXCZDedyLYw1p+uGQvfDkhYS9RXnjQ1RNYYcOl"
    "RcAtHxQZ6SJwYQpilquVGv/rHSQv1SnieXSkcaOTCL3SJIJBV1d8am9tHYfimin/ULnCHjuEThiHgJBM"
    "3EeWWt49JeG9pdoaSiFO/vJW1V1bhsYez44sSce/kawKpeMp9UqibkjK0wQcFSp4mrZBlwXIppNj9fQs"
    "7aKNeNA==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5"
    "Padding,iterations:4096,passwordLength:11,encryptedPassword:j1FKpC5N3CoLyKa9nCpf"
    "Uw=="
)
GCM = (
    "initializationVector:uBywrze7f+/cWSvb,keyLength:128,salt:APzt13UdGtJNmWfuqKx3fId"
    "O5E5oMjeqGjj+uTQMIySl6EIQf4MpsWnIfO5DSiay8YytKL274uLr1poWns+su9+LWo+Alz7SQ298Qko"
    "jEtiy/qRDCS5zw2IB9PA87Wihr+iQvxjJfgspMoTHeggtmLiVgJ0Jbb3ydA4/CHCXiDwGPzbUURjeC0K"
    "9rlEYPBvZFpdf7d211eH41x6oWk0SeoIL0fZUaCGd0/n+RrkeLj3n/9dZIa/wfstbVV8DQcODGb4T++e"
    "/9HsJ1QLf6db7Wf9FQsvZqS6IALxoLjeD6+ufuHMl4o5IzUWJCr/MtFfUndu9m0WdfwSrCDPIuthTwQ="
    "=,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/GCM/NoPadding,aut"
    "henticationTagLength:128,iterations:4096,passwordLength:11,encryptedPassword:0vN"
    "m05gBnp2uexEE7DFCtEmz9J0BKfBMlyNz8J4="
)
"""Both written by the EncryptingPasswordEncoder of Kafka 3.9.1."""
QUICK = Encoding(CIPHERS[0], KEY_FACTORIES[0], 128, 1)


@pytest.mark.parametrize("text", [CBC, GCM])
def test_password_that_kafka_encrypted_is_decrypted(text: str) -> None:
    assert is_encoded(text)
    assert decode(text, SECRET) == PASSWORD


@settings(deadline=None)
@given(
    st.text(),
    st.text(min_size=1),
    st.builds(
        Encoding,
        st.sampled_from(CIPHERS),
        st.sampled_from(KEY_FACTORIES),
        st.sampled_from(KEY_BITS),
        st.integers(1, 9),
    ),
)
def test_every_password_is_decrypted_under_its_secret(
    password: str, secret: str, encoding: Encoding
) -> None:
    text = encode(password, secret, encoding, os.urandom)
    assert decode(text, secret) == password


@pytest.mark.parametrize("text", [CBC, GCM])
def test_nothing_is_decrypted_under_another_secret(text: str) -> None:
    with pytest.raises(UndecodablePassword):
        decode(text, "secret")


def test_two_texts_of_one_password_are_different() -> None:
    assert encode("a", SECRET, QUICK, os.urandom) != encode("a", SECRET, QUICK, os.urandom)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("iterations:4096", "iterations:1000000000"),
        ("iterations:4096", "iterations:many"),
        ("keyLength:128", "keyLength:999999999"),
        ("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"),
        ("PBKDF2WithHmacSHA512", "PBKDF2WithHmacMD5"),
        ("passwordLength:11", "passwordLength:12"),
        ("initializationVector:", "initializationVector:A"),
        ("initializationVector", "other"),
        ("salt:", "salt:?"),
        ("encryptedPassword:", "encryptedPassword:AAAA"),
    ],
)
def test_damaged_texts_are_refused(old: str, new: str) -> None:
    assert old in CBC
    with pytest.raises(UndecodablePassword):
        decode(CBC.replace(old, new), SECRET)


def test_tag_of_another_length_is_refused() -> None:
    with pytest.raises(UndecodablePassword):
        decode(GCM.replace("TagLength:128", "TagLength:32"), SECRET)


def test_ordinary_password_is_not_taken_for_an_encrypted_one() -> None:
    assert not is_encoded("encryptedPassword")
    assert not is_encoded("a:b,c")
