from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import decode, encode
from schemas.errors import RejectedError
from schemas.events import Header
from schemas.records import Record, rejection

RECORDS = st.builds(
    Record,
    topic=st.sampled_from(["reef.interactions.v1", "reef.experience.v1"]),
    partition=st.integers(0, 50),
    offset=st.integers(0, 2**60),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(
        st.builds(Header, name=st.text(st.characters(codec="utf-8")), value=st.none() | st.binary())
    ).map(tuple),
    timestamp_us=st.integers(0, 2**60),
)
ERROR = RejectedError("expected more, got less: send it whole", reason="truncated")


@given(RECORDS)
def test_a_rejection_keeps_every_byte_and_can_be_written(record: Record) -> None:
    rejected = rejection(record, ERROR, "codec")
    assert decode(encode(rejected)) == rejected
    assert (rejected.key, rejected.value, rejected.headers) == (record.key, record.value, record.headers)
    assert (rejected.reason, rejected.detail, rejected.stage) == ("truncated", str(ERROR), "codec")
    assert rejected.rejected_at_us == record.timestamp_us


@given(RECORDS, RECORDS)
def test_the_id_of_a_rejection_is_that_of_its_place(first: Record, second: Record) -> None:
    same_place = (first.topic, first.partition, first.offset) == (
        second.topic,
        second.partition,
        second.offset,
    )
    ids = {rejection(record, ERROR, "codec").event_id for record in (first, second)}
    assert (len(ids) == 1) is same_place
    assert rejection(first, ERROR, "session").event_id == rejection(first, ERROR, "codec").event_id
