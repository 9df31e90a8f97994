"""The parts of X.509 certificates that a broker reads: names, validity and alternative names.

`ssl` reads a certificate only into texts that have lost the types of its values, and
`cryptography` takes 150 ms to import. Names are printed as Java's `X500Principal.getName` does
(RFC 2253), because rules and principals are written against these texts.
"""

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[^-]*)-----END (?P=label)-----"
)
_INTEGER, _OID, _SEQUENCE, _SET = 0x02, 0x06, 0x30, 0x31
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""The types that Java prints as text: UTF8, Printable, T61, IA5, General and BMP strings."""
_SUBJECT_ALTERNATIVE_NAME: Final = "2.5.29.17"
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_BLANKS: Final = " \r"


class InvalidCertificate(ValueError):
    """Bytes that are not a certificate."""


class Certificate(NamedTuple):
    """The fields of a certificate that are shown, compared and mapped to a principal."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    alternative_names: frozenset[bytes]
    """The names of the extension, each as it is encoded."""


class _Value(NamedTuple):
    tag: int
    content: memoryview
    whole: memoryview


def parse_certificate(der: bytes) -> Certificate:
    """Parse a certificate in DER; raise InvalidCertificate."""
    try:
        (outer,) = _values(memoryview(der))
        body = next(_values(_content(outer, _SEQUENCE)))
        fields = list(_values(_content(body, _SEQUENCE)))
        if fields[0].tag == _VERSION:
            del fields[0]
        _serial, _algorithm, issuer, validity, subject, _key, *rest = fields
        not_before, not_after = map(_time, _values(_content(validity, _SEQUENCE)))
        return Certificate(
            _name(subject), _name(issuer), not_before, not_after, _alternative_names(rest)
        )
    except (IndexError, ValueError, StopIteration) as error:
        raise InvalidCertificate(f"not an X.509 certificate: {error}") from error


def issuer_of_list(der: bytes) -> str:
    """Return the name of the authority of a revocation list in DER; raise InvalidCertificate."""
    try:
        (outer,) = _values(memoryview(der))
        body = next(_values(_content(outer, _SEQUENCE)))
        fields = list(_values(_content(body, _SEQUENCE)))
        _algorithm, issuer = fields[fields[0].tag == _INTEGER :][:2]
        return _name(issuer)
    except (IndexError, ValueError, StopIteration) as error:
        raise InvalidCertificate(f"not a revocation list: {error}") from error


def pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the label of each block of a PEM text, and the block with its usual line breaks.

    Properties often hold a PEM text in one line, with blanks for its line breaks.
    """
    for found in _BLOCK.finditer(text):
        label, body = found["label"], found["body"]
        if ":" not in body:  # a header of an encrypted key of the old format needs its own line
            packed = "".join(body.split())
            lines = (packed[at : at + 64] for at in range(0, len(packed), 64))
            body = "\n{}\n".format("\n".join(lines))
        yield label, f"-----BEGIN {label}-----{body}-----END {label}-----\n"


def certificates_of(text: str) -> list[bytes]:
    """Return the certificates of a PEM text in DER; raise InvalidCertificate."""
    return [
        _decoded(block)
        for label, block in pem_blocks(text)
        if label in ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")
    ]


def revocation_lists_of(text: str) -> list[bytes]:
    """Return the revocation lists of a PEM text in DER; raise InvalidCertificate."""
    return [_decoded(block) for label, block in pem_blocks(text) if label == "X509 CRL"]


def _decoded(block: str) -> bytes:
    try:
        return base64.b64decode("".join(block.split("\n")[1:-2]), validate=True)
    except ValueError as error:
        raise InvalidCertificate(f"a PEM block is not base64: {error}") from error


def _values(data: memoryview) -> Iterator[_Value]:
    """Yield the values of an encoding, one after another."""
    at = 0
    while at < len(data):
        tag, first, start = data[at], data[at + 1], at + 2
        length = first
        if first & 0x80:
            count = first & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("a length of more than four bytes")
            length = int.from_bytes(data[start : start + count], "big")
            start += count
        end = start + length
        if end > len(data):
            raise ValueError("a value ends behind the data")
        yield _Value(tag, data[start:end], data[at:end])
        at = end


def _content(value: _Value, tag: int) -> memoryview:
    if value.tag != tag:
        raise ValueError(f"tag {value.tag:#x} instead of {tag:#x}")
    return value.content


def _time(value: _Value) -> datetime:
    text = bytes(value.content).decode("ascii")
    if value.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif value.tag != _GENERALIZED_TIME:
        raise ValueError("a time of an unknown type")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _alternative_names(fields: list[_Value]) -> frozenset[bytes]:
    for field in fields:
        if field.tag == _EXTENSIONS:
            (extensions,) = _values(field.content)
            for extension in _values(_content(extensions, _SEQUENCE)):
                name, *_, value = _values(_content(extension, _SEQUENCE))
                if _oid(_content(name, _OID)) == _SUBJECT_ALTERNATIVE_NAME:
                    (names,) = _values(value.content)
                    each = _values(_content(names, _SEQUENCE))
                    return frozenset(bytes(name.whole) for name in each)
    return frozenset()


def _name(name: _Value) -> str:
    """Return a distinguished name as text, the most specific part first."""
    parts = []
    for relative in _values(_content(name, _SEQUENCE)):
        attributes = _values(_content(relative, _SET))
        parts.append("+".join(_attribute(attribute) for attribute in attributes))
    return ",".join(reversed(parts))


def _attribute(attribute: _Value) -> str:
    kind, value = _values(_content(attribute, _SEQUENCE))
    oid = _oid(_content(kind, _OID))
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    text = _ESCAPED.sub(r"\\\g<0>", bytes(value.content).decode("utf-8", "replace"))
    text = text.replace("\0", "\\00")
    rest = text.lstrip(_BLANKS)
    inner = rest.rstrip(_BLANKS)
    before, after = text[: len(text) - len(rest)], rest[len(inner) :]
    return f"{keyword}={_escape_each(before)}{inner}{_escape_each(after)}"


def _escape_each(blanks: str) -> str:
    return "".join(f"\\{blank}" for blank in blanks)


def _oid(content: memoryview) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if number >> 128:
            # Those of UUIDs are the largest. Shifting one of 90 KB again and again takes 0.7 s.
            raise ValueError("a number of an object identifier is too large")
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))
