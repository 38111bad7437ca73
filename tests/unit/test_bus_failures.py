import asyncio
from pathlib import Path

import pytest
from aiokafka import errors as kafka
from pydantic import SecretStr

from schemas.bus import BusLimits, KafkaAccess, kafka_access
from schemas.bus.access import client_options
from schemas.bus.failures import calling, translated, until_open
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.settings import KafkaSettings
from schemas.settings.secrets import KafkaLogin


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (kafka.ProducerFenced(), ConflictError, "fenced"),
        (kafka.InvalidProducerEpoch(), ConflictError, "fenced"),
        (kafka.OffsetOutOfRangeError(), ConflictError, "log_truncated"),
        (kafka.MessageSizeTooLargeError(), RejectedError, "kafka_refused"),
        (kafka.TopicAuthorizationFailedError("t"), RejectedError, "kafka_refused"),
        (kafka.UnknownTopicOrPartitionError(), UnavailableError, "unknown_topic"),
        (kafka.OutOfOrderSequenceNumber(), UnavailableError, "kafka_failed"),
        (kafka.KafkaConnectionError(), UnavailableError, "kafka_failed"),
        (kafka.KafkaTimeoutError(), UnavailableError, "kafka_failed"),
    ],
)
async def test_a_failure_of_kafka_is_sorted_by_who_can_act(
    error: kafka.KafkaError, kind: type[ReefError], reason: str
) -> None:
    assert (type(translated(error, "do this")), translated(error, "do this").reason) == (kind, reason)
    with pytest.raises(kind, match="expected Kafka to do this, got") as seen:
        async with calling("do this", 5.0):
            raise error
    assert seen.value.__cause__ is error
    assert "\n" not in str(seen.value)


async def test_a_call_without_an_answer_ends_at_its_deadline() -> None:
    with pytest.raises(UnavailableError, match=r"within 0\.01 s") as seen:
        async with calling("answer", 0.01):
            await asyncio.Event().wait()
    assert seen.value.reason == "deadline"


async def test_opening_tries_again_while_the_cluster_is_away_and_no_longer_when_refused() -> None:
    tries: list[int] = []

    async def open_at_the_third_try() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise kafka.KafkaConnectionError

    async def be_refused() -> None:
        tries.append(1)
        raise kafka.AuthenticationFailedError

    await until_open(open_at_the_third_try, "open", 60.0)
    assert len(tries) == 3
    with pytest.raises(RejectedError):
        await until_open(be_refused, "open", 60.0)
    assert len(tries) == 4


async def test_opening_in_vain_tells_the_last_failure() -> None:
    async def fail() -> None:
        raise kafka.KafkaConnectionError("nobody there")

    with pytest.raises(UnavailableError, match="nobody there"):
        await until_open(fail, "open", 0.05)


def test_a_client_says_who_asks_only_where_it_is_asked() -> None:
    plain = client_options(KafkaAccess(bootstrap="a:1"), BusLimits())
    assert plain["security_protocol"] == "PLAINTEXT"
    assert not {key for key in plain if key.startswith(("sasl", "ssl"))}
    settings = KafkaSettings.model_validate(
        {
            "bootstrap": "a:1,b:2",
            "security": {
                "protocol": "SASL_SSL",
                "mechanism": "SCRAM-SHA-256",
                "username_env": "U",
                "password_env": "P",
            },
        }
    )
    login = KafkaLogin(username=SecretStr("reef"), password=SecretStr("a secret"))
    access = kafka_access(settings, login)
    assert "a secret" not in repr(access)
    options = client_options(access, BusLimits())
    assert options["bootstrap_servers"] == "a:1,b:2"
    assert options["ssl_context"].check_hostname
    assert (options["sasl_mechanism"], options["sasl_plain_username"], options["sasl_plain_password"]) == (
        "SCRAM-SHA-256",
        "reef",
        "a secret",
    )


@pytest.mark.parametrize("content", [None, b"not a certificate"])
def test_an_unreadable_ca_file_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    ca_file = tmp_path / "ca.pem"
    if content is not None:
        ca_file.write_bytes(content)
    with pytest.raises(RejectedError, match=r"kafka\.security\.ca_file, got .*ca\.pem"):
        client_options(KafkaAccess(bootstrap="a:1", protocol="SSL", ca_file=ca_file), BusLimits())
