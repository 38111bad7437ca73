"""Shell: each call to Kafka has a deadline, and its failures become our three kinds, here alone."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiokafka import errors as kafka

from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError

_FENCED = (kafka.ProducerFenced, kafka.InvalidProducerEpoch, kafka.TransactionCoordinatorFenced)
_REFUSED = (
    kafka.AuthenticationFailedError,
    kafka.AuthenticationMethodNotSupported,
    kafka.ClusterAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.InvalidConfigurationError,
    kafka.InvalidPartitionsError,
    kafka.InvalidReplicationFactorError,
    kafka.InvalidTimestampError,
    kafka.InvalidTopicError,
    kafka.InvalidTransactionTimeout,
    kafka.KafkaConfigurationError,
    kafka.MessageSizeTooLargeError,
    kafka.PolicyViolationError,
    kafka.RecordListTooLargeError,
    kafka.RecordTooLargeError,
    kafka.SaslAuthenticationFailed,
    kafka.TopicAuthorizationFailedError,
    kafka.TransactionalIdAuthorizationFailed,
    kafka.UnsupportedSaslMechanismError,
)
_OF_THE_RECORD = (
    kafka.InvalidTimestampError,
    kafka.MessageSizeTooLargeError,
    kafka.RecordListTooLargeError,
    kafka.RecordTooLargeError,
)
_OVERRUN = (kafka.OffsetOutOfRangeError,)
_HOST, _HOST_AS = re.compile(r"\('([^']*)', (\d+), <[^>]*>\)"), r"\1:\2"
"""How aiokafka writes an address, and how people do."""
_RETRY_FIRST_S, _RETRY_MAX_S = 0.1, 2.0


@asynccontextmanager
async def calling(what: str, deadline_s: float) -> AsyncIterator[None]:
    """Bound a call and translate its failure; `what` completes the sentence "expected Kafka to …"."""
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError as error:
        raise UnavailableError(
            f"expected Kafka to {what} within {deadline_s:g} s, got no answer: check that it runs",
            reason="deadline",
        ) from error
    except kafka.KafkaError as error:
        raise translated(error, what) from error


def is_of_record(error: ReefError) -> bool:
    """Say whether a failed send blames the record itself: then it will never be taken."""
    return error.__cause__ is None or isinstance(error.__cause__, _OF_THE_RECORD)


def translated(error: kafka.KafkaError, what: str) -> ReefError:
    """Sort a failure by who can act."""
    said = f"expected Kafka to {what}, got {_HOST.sub(_HOST_AS, str(error))}"
    if isinstance(error, _FENCED):
        return ConflictError(f"{said}: another producer took over this transactional id", reason="fenced")
    if isinstance(error, _OVERRUN):
        return ConflictError(f"{said}: the log no longer holds what is asked for", reason="log_truncated")
    if isinstance(error, _REFUSED):
        return RejectedError(f"{said}: correct the request or the cluster's settings", reason="kafka_refused")
    if isinstance(error, kafka.UnknownTopicOrPartitionError):
        return UnavailableError(
            f"{said}: create the topics with `reef topics --create`", reason="unknown_topic"
        )
    return UnavailableError(f"{said}: check that the brokers run and are reachable", reason="kafka_failed")


async def until_open(open_client: Callable[[], Awaitable[None]], what: str, deadline_s: float) -> None:
    """Open a client, trying again while the cluster is away, until the deadline. Raises as `calling`."""
    failed: UnavailableError | None = None
    pause_s = _RETRY_FIRST_S
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    async with calling(what, deadline_s):
                        return await open_client()
                except UnavailableError as error:
                    failed = error
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
    except TimeoutError as error:
        raise failed or UnavailableError(f"expected Kafka to {what} within {deadline_s:g} s") from error
