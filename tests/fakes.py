"""Shell: small real classes that stand in for what is outside; contract tests run on them and on the real."""

from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager

from schemas.claims import Blob, BlobRef
from schemas.codec import decode
from schemas.errors import ReefError, RejectedError, UnavailableError
from schemas.events import Event
from schemas.ids import Sha256
from schemas.records import Outgoing, Placed


class MemoryBlobs:
    """A blob store in a dict."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.is_up = True

    def uri_of(self, sha256: Sha256) -> str:
        """Say where a blob will be."""
        return f"memory:///{sha256}"

    async def put(self, blob: Blob) -> BlobRef:
        """Keep a blob."""
        if not self.is_up:
            raise UnavailableError("expected the blob store to answer, got nothing: start it")
        self.data[blob.ref.uri] = blob.data
        return blob.ref


class MemoryLog:
    """A broker's log as its producers see it: in order, away or refusing as it is told."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []
        self.is_up = True
        self.refused: set[tuple[str, bytes]] = set()
        self.failures_ahead = 0
        self.num_opened = 0

    @asynccontextmanager
    async def open_producer(self) -> AsyncIterator["MemoryProducer"]:
        """Open a producer. Raises UnavailableError while the log is away."""
        if not self.is_up:
            raise UnavailableError("expected the log to answer, got nothing: start it")
        self.num_opened += 1
        yield MemoryProducer(self)

    def values(self, topic: str) -> list[bytes]:
        """Give the records of a topic in order, each once."""
        seen = dict.fromkeys(record.value or b"" for record in self.records if record.topic == topic)
        return list(seen)

    def events(self, topic: str) -> list[Event]:
        """Give the events of a topic in order, each once."""
        return [decode(value) for value in self.values(topic)]


class MemoryProducer:
    """Writes into a MemoryLog; after its first failure it takes nothing more, as an idempotent one."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._is_broken = False

    async def send_record(self, outgoing: Outgoing, /) -> "MemoryDelivery":
        """Write a record."""
        return MemoryDelivery(self._placed(outgoing))

    async def send_records(self, records: Sequence[Outgoing], /) -> "MemoryDeliveries":
        """Write records, each behind the one before it."""
        return MemoryDeliveries([self._placed(record) for record in records])

    def _placed(self, outgoing: Outgoing) -> Placed | ReefError:
        if (outgoing.topic, outgoing.key) in self._log.refused:
            self._is_broken = True
            return RejectedError("expected a record that fits, got a larger one: make it smaller")
        if self._log.failures_ahead > 0:
            self._log.failures_ahead -= 1
            self._is_broken = True
        if self._is_broken or not self._log.is_up:
            return UnavailableError("expected the log to answer, got nothing: start it")
        self._log.records.append(outgoing)
        return Placed(topic=outgoing.topic, partition=0, offset=len(self._log.records) - 1)


class MemoryDeliveries:
    """What became of records."""

    def __init__(self, outcomes: Sequence[Placed | ReefError]) -> None:
        self._outcomes = outcomes

    def __await__(self) -> Generator[None, None, None]:
        """Say nothing, or raise the first failure."""
        yield
        for outcome in self._outcomes:
            if isinstance(outcome, ReefError):
                raise outcome


class MemoryDelivery:
    """What became of a record."""

    def __init__(self, outcome: Placed | ReefError) -> None:
        self._outcome = outcome

    def __await__(self) -> Generator[None, None, Placed]:
        """Give the place, or raise."""
        yield
        if isinstance(self._outcome, ReefError):
            raise self._outcome
        return self._outcome
