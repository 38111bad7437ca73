"""Large fields go to blobs, the largest first, and come back."""

import io
from collections.abc import Callable
from hashlib import sha256

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.claims import BLOB_BYTES_MAX, Blob
from schemas.codec import (
    BlobRef,
    BlobsNeededError,
    decode,
    encode,
    encode_claim_checked,
)
from schemas.errors import RejectedError
from schemas.events import (
    EVENT_TYPES,
    Event,
)
from schemas.ids import Sha256
from schemas.packed import JsonBytes, Logprobs, Mask, OriginalBytes, TokenIds
from tests.builders import (
    a_choice,
    a_feedback,
    a_training_sample,
    an_event_rejected,
    an_experience_assembled,
    an_inference,
)
from tests.strategies import events

HEADER_BYTES = 10
each_type = pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def uri_of(digest: Sha256) -> str:
    return f"memory:///{digest}"


def fetched(blobs: tuple[Blob, ...]) -> dict[Sha256, bytes]:
    return {blob.ref.sha256: blob.data for blob in blobs}


def varint(number: int) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, "long", number)
    return written.getvalue()


LARGE: dict[str, Callable[[bytes], Event]] = {
    "request": lambda octets: an_inference(request=JsonBytes(octets)),
    "choice": lambda octets: an_inference(choices=(a_choice(token_ids=TokenIds(octets)),)),
    "nullable": lambda octets: a_feedback(feedback=JsonBytes(octets)),
    "original": lambda octets: an_event_rejected(value=OriginalBytes(octets)),
    "nested": lambda octets: a_training_sample(experience=an_experience_assembled(logprobs=Logprobs(octets))),
    "mask": lambda octets: an_experience_assembled(loss_mask=Mask(octets)),
}


@pytest.mark.parametrize("event_with", LARGE.values(), ids=LARGE.keys())
def test_a_large_field_goes_to_a_blob_and_comes_back(event_with: Callable[[bytes], Event]) -> None:
    event = event_with(b"\0\0\0\1" * 100_000)
    data, (blob,) = encode_claim_checked(event, uri_of=uri_of)
    assert len(data) < 2_500
    assert blob.data == b"\0\0\0\1" * 100_000
    digest = sha256(blob.data).hexdigest()
    assert blob.ref == BlobRef(uri=f"memory:///{digest}", sha256=Sha256(digest), size=400_000)
    with pytest.raises(BlobsNeededError) as caught:
        decode(data)
    assert caught.value.refs == (blob.ref,)
    assert decode(data, fetched((blob,))) == event


def test_a_small_event_keeps_its_fields() -> None:
    event = an_inference(request=JsonBytes(b"x" * 200_000))
    assert encode_claim_checked(event, uri_of=uri_of) == (encode(event), ())


def test_the_largest_fields_go_first_and_no_more_than_needed() -> None:
    event = an_inference(
        request=JsonBytes(b"q" * 300_000),
        response=JsonBytes(b"p" * 500_000),
        prompt_token_ids=TokenIds(bytes(100_000)),
    )
    data, blobs = encode_claim_checked(event, threshold_bytes=500_000, uri_of=uri_of)
    assert [blob.ref.size for blob in blobs] == [500_000]
    assert len(data) <= 500_000
    _, blobs = encode_claim_checked(event, threshold_bytes=256 * 1024, uri_of=uri_of)
    assert [blob.ref.size for blob in blobs] == [500_000, 300_000]
    _, blobs = encode_claim_checked(event, threshold_bytes=1_000, uri_of=uri_of)
    assert [blob.ref.size for blob in blobs] == [500_000, 300_000, 100_000]


def test_equal_fields_share_a_blob() -> None:
    event = an_inference(request=JsonBytes(b"same" * 100_000), response=JsonBytes(b"same" * 100_000))
    data, blobs = encode_claim_checked(event, uri_of=uri_of)
    assert len(blobs) == 1
    assert decode(data, fetched(blobs)) == event


def test_what_has_no_large_field_stays_too_large_and_whole() -> None:
    event = a_feedback(references=tuple("r" * 60 for _ in range(10_000)))
    assert encode_claim_checked(event, uri_of=uri_of) == (encode(event), ())


@calm
@given(events(), st.integers(0, 600))
def test_an_event_comes_back_from_its_bytes_and_blobs(event: Event, threshold_bytes: int) -> None:
    data, blobs = encode_claim_checked(event, threshold_bytes, uri_of=uri_of)
    assert (data, blobs) == encode_claim_checked(event, threshold_bytes, uri_of=uri_of)
    assert decode(data, fetched(blobs)) == event
    assert len(data) <= max(len(encode(event)), threshold_bytes)
    if blobs:
        assert len(encode(event)) > threshold_bytes
        with pytest.raises(BlobsNeededError):
            decode(data)


def test_a_blob_of_another_size_is_refused() -> None:
    data, (blob,) = encode_claim_checked(LARGE["request"](bytes(300_000)), uri_of=uri_of)
    with pytest.raises(RejectedError, match="300000"):
        decode(data, {blob.ref.sha256: blob.data[:-1]})


def test_a_blob_is_checked_like_what_stands_in_the_record() -> None:
    data, (blob,) = encode_claim_checked(LARGE["mask"](bytes(300_000)), uri_of=uri_of)
    with pytest.raises(RejectedError, match="zeros and ones"):
        decode(data, {blob.ref.sha256: b"\7" * 300_000})


@pytest.mark.parametrize(
    ("sha", "size"), [("../../etc/passwd" + "0" * 48, 9), ("A" * 64, 9), ("a" * 64, BLOB_BYTES_MAX + 1)]
)
def test_a_blob_name_that_is_none_is_refused(sha: str, size: int) -> None:
    data, (blob,) = encode_claim_checked(LARGE["request"](bytes(300_000)), uri_of=uri_of)
    name = varint(64) + blob.ref.sha256.encode() + varint(300_000)
    assert data.count(name) == 1
    with pytest.raises(RejectedError, match="name of a blob"):
        decode(data.replace(name, varint(len(sha)) + sha.encode() + varint(size)))
