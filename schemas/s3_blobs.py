"""Shell: blobs in a bucket of S3, or of what speaks its protocol, such as lakeFS's gateway.

Not a multipart upload: a blob is one field of one call, far below the limit of one request.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from schemas.claims import Blob, BlobRef, missing_blob, verified_blob
from schemas.errors import UnavailableError
from schemas.ids import Sha256

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
ATTEMPTS_MAX = 3
CONNECTIONS_MAX = 16
_ABSENT = frozenset({"NoSuchKey", "404"})

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """How to reach the bucket; what is None comes from boto3's own chain of places."""

    endpoint_url: str | None = None
    """Of a server other than Amazon's."""
    region: str | None = None
    """The bucket's region."""
    access_key_id: str | None = None
    """Whom requests are signed by."""
    secret_access_key: SecretStr | None = None
    """What they are signed with."""


class S3Blobs:
    """A store under a prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, access: S3Access) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/".lstrip("/")
        self._client = _client(access)

    def uri_of(self, sha256: Sha256) -> str:
        """Say where a blob is or will be."""
        return f"s3://{self._bucket}/{self._key(sha256)}"

    async def put(self, blob: Blob) -> BlobRef:
        """Write a blob, durable on return; a second time is harmless. Raises UnavailableError."""
        place = {"Bucket": self._bucket, "Key": self._key(blob.ref.sha256)}
        await _answered(lambda: self._client.put_object(**place, Body=blob.data))
        return blob.ref

    async def get(self, ref: BlobRef) -> bytes:
        """Read and verify a blob. Raises RejectedError when it is gone or other bytes, UnavailableError."""
        data = await _answered(lambda: self._read(ref))
        if data is None:
            raise missing_blob(ref, self.uri_of(ref.sha256))
        return verified_blob(ref, data)

    async def delete(self, ref: BlobRef) -> None:
        """Remove a blob; one that is gone is gone. Raises UnavailableError."""
        place = {"Bucket": self._bucket, "Key": self._key(ref.sha256)}
        await _answered(lambda: self._client.delete_object(**place))

    def _read(self, ref: BlobRef) -> bytes | None:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(ref.sha256))
        except ClientError as error:
            if error.response["Error"]["Code"] in _ABSENT:
                return None
            raise
        with answer["Body"] as body:
            data: bytes = body.read(ref.size + 1)
            return data

    def _key(self, digest: Sha256) -> str:
        return f"{self._prefix}{digest[:2]}/{digest}"


def _client(access: S3Access) -> Any:
    """Make a client; checksums are ours (the digest), so other servers need not know Amazon's newest."""
    secret = access.secret_access_key
    return boto3.session.Session().client(
        "s3",
        endpoint_url=access.endpoint_url,
        region_name=access.region,
        aws_access_key_id=access.access_key_id,
        aws_secret_access_key=None if secret is None else secret.get_secret_value(),
        config=Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"max_attempts": ATTEMPTS_MAX, "mode": "standard"},
            max_pool_connections=CONNECTIONS_MAX,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if access.endpoint_url else "auto"},
        ),
    )


async def _answered(ask: Callable[[], Result]) -> Result:
    try:
        return await asyncio.to_thread(ask)
    except (BotoCoreError, ClientError, OSError) as error:
        raise UnavailableError(
            f"expected the blob bucket to answer, got {error}: check its address and credentials",
            reason="blobs_unavailable",
        ) from error
