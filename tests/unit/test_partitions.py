from pathlib import Path

from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from schemas.partitions import murmur2, partition_of

JAVA = Path(__file__).parent / "data" / "murmur2.txt"


def java_table() -> list[tuple[bytes, int, int, int]]:
    rows = [line.split() for line in JAVA.read_text().splitlines() if not line.startswith("#")]
    return [
        (b"" if key == "-" else bytes.fromhex(key), int(signed), int(of_8), int(of_50))
        for key, signed, of_8, of_50 in rows
    ]


def test_hashes_and_partitions_are_those_of_java_for_200_keys() -> None:
    table = java_table()
    assert len({key for key, *_ in table}) == 200
    ours = [
        (key, murmur2(key), partition_of(key, 8), partition_of(key, 50))
        for key, _signed, _of_8, _of_50 in table
    ]
    assert ours == [(key, signed % 2**32, of_8, of_50) for key, signed, of_8, of_50 in table]


@given(st.binary(max_size=64))
def test_the_client_we_use_hashes_alike(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key)


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_partition_is_within_the_topic(key: bytes, num_partitions: int) -> None:
    assert 0 <= partition_of(key, num_partitions) < num_partitions
