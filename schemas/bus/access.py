"""Shell: how a cluster is reached, and the limits of everything that is asked of it.

Not settings: the composition root reads those and hands this down.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from schemas.errors import RejectedError, words_of
from schemas.settings import KafkaSettings
from schemas.settings.secrets import KafkaLogin

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """A cluster and the proof of who asks."""

    bootstrap: str
    """`host:port,host:port…`."""
    protocol: Protocol = "PLAINTEXT"
    """Kafka's `security.protocol`."""
    mechanism: Mechanism = "SCRAM-SHA-512"
    """Kafka's `sasl.mechanism`; used with SASL only."""
    username: str | None = None
    """Set with SASL."""
    password: SecretStr | None = None
    """Set with SASL."""
    ca_file: Path | None = None
    """PEM of the authorities to trust; None for the system's."""


def kafka_access(kafka: KafkaSettings, login: KafkaLogin | None = None) -> KafkaAccess:
    """Take out of the settings what clients need; `schemas.settings.secrets` gives the login."""
    return KafkaAccess(
        bootstrap=kafka.bootstrap_servers,
        protocol=kafka.security.protocol,
        mechanism=kafka.security.mechanism,
        username=None if login is None else login.username.get_secret_value(),
        password=None if login is None else login.password,
        ca_file=kafka.security.ca_file,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BusLimits:
    """What may be asked at once, and how long an answer may take."""

    deadline_s: float = 30.0
    """Of each call, retries included."""
    open_deadline_s: float = 30.0
    """Of opening a client while the cluster does not answer."""
    request_timeout_ms: int = 10_000
    """Of one request to one broker, of readers; producers take `deadline_s`."""
    stall_s_max: float = 30.0
    """Of a reader that is not at the end and gets nothing."""
    linger_ms: int = 5
    """How long a record waits for company."""
    batch_bytes_max: int = 256 * 1024
    """Of records waiting per partition; beyond it senders wait."""
    transaction_timeout_ms: int = 10_000
    """An orphaned transaction hides everyone's later records until then."""
    fetch_wait_ms: int = 50
    """How long a broker holds a fetch back when nothing is new; what comes meanwhile is sent at once."""
    fetch_bytes_min: int = 1
    """What a broker gathers before it answers a fetch, within that time."""
    fetch_bytes_max: int = 16 * 1024 * 1024
    """Of one answer."""
    partition_fetch_bytes_max: int = 256 * 1024
    """Of one partition's share of an answer: a read-back of one record pays for all of it."""
    poll_records_max: int = 2_000
    """Handed on at once."""


def client_options(access: KafkaAccess, limits: BusLimits) -> dict[str, Any]:
    """Give what every client of aiokafka is opened with. Raises RejectedError on an unreadable CA file."""
    options: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap,
        "request_timeout_ms": limits.request_timeout_ms,
        "security_protocol": access.protocol,
    }
    if access.protocol.endswith("SSL"):
        options["ssl_context"] = _trust(access.ca_file)
    if access.protocol.startswith("SASL"):
        assert access.username is not None, "settings require a name with SASL"
        assert access.password is not None, "settings require a password with SASL"
        options["sasl_mechanism"] = access.mechanism
        options["sasl_plain_username"] = access.username
        options["sasl_plain_password"] = access.password.get_secret_value()
    return options


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise RejectedError(
            f"expected PEM certificates in kafka.security.ca_file, got {ca_file}: {words_of(error)}: "
            "name a readable file of the authorities to trust",
            reason="bad_ca_file",
        ) from error
