"""Pure: the section `kafka`: where the log is, how it is laid out, and how we prove who we are."""

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from schemas.settings.section import EMBEDDED, EnvironmentName, FilePath, Port, Section

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


class KafkaSecurity(Section):
    """How clients reach a broker that is not ours; names of variables, never secrets."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="as Kafka's security.protocol"
    )
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="as Kafka's sasl.mechanism; used with SASL only"
    )
    username_env: EnvironmentName | None = Field(None, description="variable that holds the user's name")
    password_env: EnvironmentName | None = Field(None, description="variable that holds the password")
    ca_file: FilePath | None = Field(None, description="PEM of the authorities to trust; empty: the system's")

    @property
    def has_sasl(self) -> bool:
        """Whether a name and a password are sent."""
        return self.protocol.startswith("SASL")

    @model_validator(mode="after")
    def _sasl_needs_both(self) -> Self:
        if self.has_sasl and (self.username_env is None or self.password_env is None):
            raise ValueError(
                f"expected username_env and password_env with {self.protocol}: name both variables"
            )
        return self


class KafkaSettings(Section):
    """The log."""

    bootstrap: str = Field(EMBEDDED, description="embedded, or host:port,host:port…")
    port: Port = Field(9_092, description="port of the embedded broker")
    partitions: int = Field(8, ge=1, le=4_096, description="partitions of each topic, fixed at creation")
    replication_factor: int | None = Field(
        None, ge=1, le=32_767, description="copies of each partition; empty: 1 embedded, 3 otherwise"
    )
    retention_days: int = Field(
        14, ge=1, description="how long calls and experience are kept; twice the longest window or more"
    )
    security: KafkaSecurity = Field(KafkaSecurity(), description="how clients reach the broker")

    @field_validator("bootstrap")
    @classmethod
    def _addresses(cls, text: str) -> str:
        addresses = [address.strip() for address in text.split(",")]
        if text != EMBEDDED and not all(_ADDRESS.fullmatch(address) for address in addresses):
            raise ValueError("expected embedded, or host:port,host:port…")
        return ",".join(addresses)

    @property
    def is_embedded(self) -> bool:
        """Whether the broker runs beside us."""
        return self.bootstrap == EMBEDDED

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}" if self.is_embedded else self.bootstrap

    @property
    def copies(self) -> int:
        """The replication factor that topics are created with."""
        return self.replication_factor or (1 if self.is_embedded else 3)
