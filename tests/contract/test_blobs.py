"""Blob stores: the same assertions on a folder and on the S3 gateway of a real lakeFS."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import boto3
import lakefs as lakefs_client
import pytest
from lakefs.client import Client
from pydantic import SecretStr

from deploy.ports import free_port
from schemas.blobs import BlobStore, open_blob_store
from schemas.claims import Blob, BlobRef
from schemas.codec import BlobsNeededError, decode, encode_claim_checked
from schemas.errors import RejectedError, UnavailableError
from schemas.ids import Sha256
from schemas.packed import JsonBytes
from schemas.s3_blobs import S3Access
from tests.builders import an_inference
from tests.conftest import LakefsEndpoint

SIZES = [0, 1, 1_000, 300_000, 5_000_000]


class Opened:
    """A store, and the hand of somebody who writes other bytes over a blob."""

    def __init__(self, store: BlobStore, overwrite: Callable[[BlobRef, bytes], object]) -> None:
        self.store = store
        self.overwrite = overwrite


def in_folder(tmp_path: Path) -> Opened:
    folder = tmp_path / "a folder"
    store = open_blob_store(folder.as_uri())
    return Opened(store, lambda ref, data: (folder / ref.sha256[:2] / ref.sha256).write_bytes(data))


def in_bucket(lakefs: LakefsEndpoint) -> Opened:
    bucket = f"blobs-{uuid4().hex[:12]}"
    client = Client(  # type: ignore[no-untyped-call] # the package is half typed
        host=lakefs.url, username=lakefs.access_key_id, password=lakefs.secret_access_key
    )
    lakefs_client.repository(bucket, client=client).create(storage_namespace=f"local://{bucket}")
    access = S3Access(
        endpoint_url=lakefs.url,
        region="us-east-1",
        access_key_id=lakefs.access_key_id,
        secret_access_key=SecretStr(lakefs.secret_access_key),
    )
    s3 = boto3.session.Session().client(
        "s3",
        endpoint_url=lakefs.url,
        region_name="us-east-1",
        aws_access_key_id=lakefs.access_key_id,
        aws_secret_access_key=lakefs.secret_access_key,
    )
    store = open_blob_store(f"s3://{bucket}/main/blobs", s3=access)

    def overwrite(ref: BlobRef, data: bytes) -> None:
        key = store.uri_of(ref.sha256).removeprefix(f"s3://{bucket}/")
        s3.put_object(Bucket=bucket, Key=key, Body=data)

    return Opened(store, overwrite)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.lakefs)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    if request.param == "folder":
        return in_folder(tmp_path)
    return in_bucket(request.getfixturevalue("lakefs"))


def a_blob(store: BlobStore, data: bytes = b"large") -> Blob:
    digest = Sha256(sha256(data).hexdigest())
    return Blob(ref=BlobRef(uri=store.uri_of(digest), sha256=digest, size=len(data)), data=data)


async def test_a_blob_comes_back_as_it_was_put(opened: Opened) -> None:
    for size in SIZES:
        blob = a_blob(opened.store, bytes(index % 251 for index in range(size)))
        assert await opened.store.put(blob) == blob.ref
        assert await opened.store.get(blob.ref) == blob.data


async def test_a_second_put_is_harmless(opened: Opened) -> None:
    blob = a_blob(opened.store)
    await asyncio.gather(*[opened.store.put(blob) for _ in range(5)])
    await opened.store.put(blob)
    assert await opened.store.get(blob.ref) == blob.data


async def test_a_blob_that_was_never_put_is_missing(opened: Opened) -> None:
    await opened.store.put(a_blob(opened.store, b"another"))
    with pytest.raises(RejectedError) as caught:
        await opened.store.get(a_blob(opened.store).ref)
    assert caught.value.reason == "blob_missing"


@pytest.mark.parametrize("data", [b"", b"larg", b"largE", b"large!", b"large" * 1_000])
async def test_other_bytes_under_a_blobs_name_are_refused_and_healed_by_the_next_put(
    opened: Opened, data: bytes
) -> None:
    blob = a_blob(opened.store)
    await opened.store.put(blob)
    opened.overwrite(blob.ref, data)
    with pytest.raises(RejectedError) as caught:
        await opened.store.get(blob.ref)
    assert caught.value.reason == "blob_mismatch"
    await opened.store.put(blob)
    assert await opened.store.get(blob.ref) == blob.data


async def test_a_blob_is_found_whatever_address_its_writer_saw(opened: Opened) -> None:
    blob = a_blob(opened.store)
    await opened.store.put(blob)
    moved = BlobRef(uri="file:///elsewhere", sha256=blob.ref.sha256, size=blob.ref.size)
    assert await opened.store.get(moved) == blob.data


async def test_a_deleted_blob_is_missing_and_may_be_deleted_again(opened: Opened) -> None:
    blob = a_blob(opened.store)
    await opened.store.put(blob)
    await opened.store.put(a_blob(opened.store, b"another"))
    await opened.store.delete(blob.ref)
    await opened.store.delete(blob.ref)
    with pytest.raises(RejectedError) as caught:
        await opened.store.get(blob.ref)
    assert caught.value.reason == "blob_missing"


async def test_an_event_of_two_megabytes_goes_by_way_of_the_store(opened: Opened) -> None:
    event = an_inference(request=JsonBytes(b"q" * 1_500_000), response=JsonBytes(b"p" * 500_000))
    data, blobs = encode_claim_checked(event, uri_of=opened.store.uri_of)
    for blob in blobs:
        await opened.store.put(blob)
    assert len(data) < 256 * 1024
    with pytest.raises(BlobsNeededError) as caught:
        decode(data)
    fetched = {ref.sha256: await opened.store.get(ref) for ref in caught.value.refs}
    assert decode(data, fetched) == event


async def test_a_folder_that_is_not_mounted_has_lost_nothing(tmp_path: Path) -> None:
    store = open_blob_store((tmp_path / "blobs").as_uri())
    with pytest.raises(UnavailableError):
        await store.get(a_blob(store).ref)


async def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file stands where the folder should be")
    store = open_blob_store((tmp_path / "blobs").as_uri())
    blob = a_blob(store)
    for action in (store.put(blob), store.get(blob.ref), store.delete(blob.ref)):
        with pytest.raises(UnavailableError, match="permissions"):
            await action


async def test_nothing_but_whole_blobs_is_left_in_the_folder(tmp_path: Path) -> None:
    store = open_blob_store((tmp_path / "blobs").as_uri())
    blobs = [a_blob(store, bytes([number]) * 1_000) for number in range(8)]
    await asyncio.gather(*[store.put(blob) for blob in blobs for _ in range(3)])
    files = {path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file()}
    assert files == {blob.ref.sha256 for blob in blobs}


async def test_a_bucket_that_does_not_answer_is_unavailable() -> None:
    access = S3Access(
        endpoint_url=f"http://127.0.0.1:{free_port()}",
        region="us-east-1",
        access_key_id="nobody",
        secret_access_key=SecretStr("nothing"),
    )
    store = open_blob_store("s3://bucket/prefix", s3=access)
    with pytest.raises(UnavailableError, match="address and credentials"):
        await store.get(a_blob(store).ref)


@pytest.mark.lakefs
async def test_a_bucket_that_is_not_there_or_not_ours_has_lost_nothing(lakefs: LakefsEndpoint) -> None:
    for key, secret in ((lakefs.access_key_id, lakefs.secret_access_key), ("nobody", "nothing")):
        access = S3Access(
            endpoint_url=lakefs.url,
            region="us-east-1",
            access_key_id=key,
            secret_access_key=SecretStr(secret),
        )
        store = open_blob_store(f"s3://absent-{uuid4().hex[:8]}/main", s3=access)
        with pytest.raises(UnavailableError):
            await store.get(a_blob(store).ref)
        with pytest.raises(UnavailableError):
            await store.put(a_blob(store))


@pytest.mark.parametrize(
    "url", ["", "blobs", "/blobs", "http://host/blobs", "file://host/blobs", "s3://", "file:"]
)
def test_another_address_is_an_error_of_the_settings(url: str) -> None:
    with pytest.raises(ValueError, match=r"blobs\.url"):
        open_blob_store(url)


def test_a_blobs_address_is_below_the_stores() -> None:
    digest = Sha256("ab" * 32)
    assert open_blob_store("file:///var/reef/blobs").uri_of(digest) == f"file:///var/reef/blobs/ab/{digest}"
    assert open_blob_store("s3://bucket/a/b/").uri_of(digest) == f"s3://bucket/a/b/ab/{digest}"
    assert open_blob_store("s3://bucket").uri_of(digest) == f"s3://bucket/ab/{digest}"
