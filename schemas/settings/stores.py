"""Pure: the sections `lakefs` and `blobs`: where releases and large fields are kept."""

import re

from pydantic import Field, field_validator

from schemas.settings.section import EMBEDDED, EmbeddedOrUrl, Port, Section

_BLOBS_URL = re.compile(r"file:///[^?#]+|s3://[a-z0-9][a-z0-9.-]*(/[^?#]*)?")


class LakefsSettings(Section):
    """The chain of releases. Keys come from lakeFS's own variables."""

    url: EmbeddedOrUrl = Field(EMBEDDED, description="embedded, or the server's address")
    port: Port = Field(8_000, description="port of the embedded server")
    storage_namespace: str = Field(
        "local://", pattern=r"^[a-z0-9]+://", description="prefix under which new repositories keep objects"
    )

    @property
    def is_embedded(self) -> bool:
        """Whether the server runs beside us."""
        return self.url == EMBEDDED

    @property
    def endpoint(self) -> str:
        """Where the server answers."""
        return f"http://127.0.0.1:{self.port}" if self.is_embedded else self.url


class BlobsSettings(Section):
    """Fields too large for the log."""

    url: str | None = Field(
        None, description="file:///folder or s3://bucket/prefix; empty: the folder blobs in reef.state_dir"
    )

    @field_validator("url")
    @classmethod
    def _file_or_s3(cls, text: str | None) -> str | None:
        if text is not None and not _BLOBS_URL.fullmatch(text):
            raise ValueError("expected file:///folder or s3://bucket/prefix")
        return text and text.rstrip("/")
