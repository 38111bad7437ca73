"""Pure: which partition a key belongs to, exactly as Java's default partitioner chooses.

Not a load balancer: a record without a key has no place here. Writers in other languages must agree with
this file; docs/kafka.md says how.

Next: schemas/bus/__init__.py
"""

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_SHIFT = 24
_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_WORD_BYTES = 4


def partition_of(key: bytes, num_partitions: int) -> int:
    """Choose the partition of a key, from 0."""
    assert num_partitions > 0, num_partitions
    return (murmur2(key) & _POSITIVE) % num_partitions


def murmur2(data: bytes) -> int:
    """Hash bytes to 32 unsigned bits with MurmurHash2 and Kafka's seed."""
    whole = len(data) - len(data) % _WORD_BYTES
    hashed = _SEED ^ len(data)
    for start in range(0, whole, _WORD_BYTES):
        word = int.from_bytes(data[start : start + _WORD_BYTES], "little") * _MIX & _WORD
        word = (word ^ word >> _SHIFT) * _MIX & _WORD
        hashed = hashed * _MIX & _WORD ^ word
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MIX & _WORD
    hashed = (hashed ^ hashed >> 13) * _MIX & _WORD
    return hashed ^ hashed >> 15
