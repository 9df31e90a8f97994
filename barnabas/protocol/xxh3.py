"""XXH3 with 64 bits and seed 0, by which Apache Kafka 4.1 recognises changes of topics (KIP-1101).

Kafka writes such hashes into the records of consumer groups: equal ones keep a group as it is when
another kind of broker takes its log over. The algorithm is Yann Collet's; the numbers are its own.
"""

from struct import Struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_P32: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_P64: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_MX1: Final = 0x165667919E3779F9
_MX2: Final = 0x9FB21C651E98DF25
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8"
    "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364ea"
    "c5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b"
    "16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE: Final = Struct("<8Q")
_ACCUMULATORS: Final = (
    _P32[2],
    _P64[0],
    _P64[1],
    _P64[2],
    _P64[3],
    _P32[1],
    _P64[4],
    _P32[0],
)
_STRIPES: Final = 16
"""Stripes of a block: each begins 8 bytes further in the secret, of which it takes 64."""


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _MX1 & _MASK
    return value ^ value >> 32


def _avalanche_xxh64(value: int) -> int:
    value = (value ^ value >> 33) * _P64[1] & _MASK
    value = (value ^ value >> 29) * _P64[2] & _MASK
    return value ^ value >> 32


def xxh3_64(data: bytes) -> int:
    """Return the hash of some bytes, from 0 to 2**64 - 1."""
    length = len(data)
    if length > 240:
        return _long(data)
    if length > 128:
        return _up_to_240(data, length)
    if length > 16:
        return _up_to_128(data, length)
    return _up_to_16(data, length)


def _up_to_16(data: bytes, length: int) -> int:
    if length > 8:
        low = _u64(data, 0) ^ (_u64(_SECRET, 24) ^ _u64(_SECRET, 32))
        high = _u64(data, length - 8) ^ (_u64(_SECRET, 40) ^ _u64(_SECRET, 48))
        swapped = int.from_bytes(low.to_bytes(8, "little"))
        return _avalanche(length + swapped + high + _fold(low, high) & _MASK)
    if length > 3:
        both = _u32(data, length - 4) + (_u32(data, 0) << 32)
        value = both ^ (_u64(_SECRET, 8) ^ _u64(_SECRET, 16))
        rotated = (value << 49 | value >> 15) ^ (value << 24 | value >> 40)
        value = ((value ^ rotated) & _MASK) * _MX2 & _MASK
        value ^= (value >> 35) + length
        value = value * _MX2 & _MASK
        return value ^ value >> 28
    if length:
        first, middle, last = data[0], data[length >> 1], data[-1]
        word = first << 16 | middle << 24 | last | length << 8
        return _avalanche_xxh64(word ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche_xxh64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mixed(data: bytes, at: int, secret: int) -> int:
    return _fold(
        _u64(data, at) ^ _u64(_SECRET, secret), _u64(data, at + 8) ^ _u64(_SECRET, secret + 8)
    )


def _up_to_128(data: bytes, length: int) -> int:
    value = length * _P64[0]
    for number in range((length - 1) // 32, -1, -1):
        value += _mixed(data, 16 * number, 32 * number)
        value += _mixed(data, length - 16 * (number + 1), 32 * number + 16)
    return _avalanche(value & _MASK)


def _up_to_240(data: bytes, length: int) -> int:
    value = length * _P64[0]
    for number in range(8):
        value += _mixed(data, 16 * number, 16 * number)
    value = _avalanche(value & _MASK)
    for number in range(8, length // 16):
        value += _mixed(data, 16 * number, 16 * (number - 8) + 3)
    value += _mixed(data, length - 16, 136 - 17)
    return _avalanche(value & _MASK)


def _long(data: bytes) -> int:
    sums = list(_ACCUMULATORS)
    stripes = (len(data) - 1) // 64
    for number in range(stripes):
        position = number % _STRIPES
        _accumulate(sums, data, 64 * number, 8 * position)
        if position == _STRIPES - 1:
            keys = _STRIPE.unpack_from(_SECRET, len(_SECRET) - 64)
            for lane in range(8):
                value = sums[lane]
                sums[lane] = (value ^ value >> 47 ^ keys[lane]) * _P32[0] & _MASK
    _accumulate(sums, data, len(data) - 64, len(_SECRET) - 64 - 7)
    value = len(data) * _P64[0]
    for lane in range(0, 8, 2):
        secret = 11 + 8 * lane
        value += _fold(
            sums[lane] ^ _u64(_SECRET, secret), sums[lane + 1] ^ _u64(_SECRET, secret + 8)
        )
    return _avalanche(value & _MASK)


def _accumulate(sums: list[int], data: bytes, at: int, secret: int) -> None:
    words = _STRIPE.unpack_from(data, at)
    keys = _STRIPE.unpack_from(_SECRET, secret)
    for lane in range(8):
        keyed = words[lane] ^ keys[lane]
        sums[lane ^ 1] += words[lane]
        sums[lane] += (keyed & 0xFFFFFFFF) * (keyed >> 32)
    for lane in range(8):
        sums[lane] &= _MASK
