"""Shell: what flows where, as a table, and Faust around it: consumer groups, rebalancing and delivery.

Faust delivers and decides whose a partition is; it commits nothing, keeps no state, and may pass over
records. What was done is known from the log alone (streams/drive.py).

Next: streams/drive.py
"""

import os
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass
from threading import Timer
from typing import Any

import faust
import structlog
from aiokafka import AIOKafkaConsumer
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from yarl import URL

from schemas.bus.access import BusLimits, KafkaAccess, client_options
from schemas.bus.patience import be_patient
from schemas.events import Header
from schemas.recipe import load_recipe
from schemas.records import Place, Record
from schemas.topics import (
    BATCH_STATE,
    CANDIDATES,
    COMMANDS,
    EXPERIENCE,
    INTERACTIONS,
    OUTCOMES,
    RELAY_STATE,
    RELEASES,
    SESSION_STATE,
    TRAINING,
)
from streams import batch, relay, session
from streams.batch_state import BatchState
from streams.processor import Processor
from streams.session_state import SessionState
from streams.settings import WorkerSettings

SESSION_TIMEOUT_S = 10
"""After a kill, another worker has the partitions this much later."""
REBALANCE_TIMEOUT_S = 30
"""A worker that is slow to answer a rebalance is waited for this long."""
HEARTBEAT_S = 2
DELIVERED_MAX = 1_000
"""Records handed on at once."""
DELIVERED_WITHIN_S = 0.02
"""How long they wait for company."""
STOP_S_MAX = 25.0
"""A stop that takes longer is forced."""
UNCOMMITTED_S = 1e9
"""Faust need not warn that it commits nothing: the transactions do."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


def processors() -> tuple[Processor, ...]:
    """List every fold with its log, its state and what it writes."""
    return (
        Processor(
            name="session",
            topic=INTERACTIONS,
            state_topic=SESSION_STATE,
            outputs=(EXPERIENCE, OUTCOMES),
            new_state=lambda number, count: SessionState(
                partition=number, num_partitions=count, load_recipe=load_recipe
            ),
            step=session.step,
            needs=session.needs,
            is_ticked=True,
        ),
        Processor(
            name="batch",
            topic=EXPERIENCE,
            state_topic=BATCH_STATE,
            outputs=(TRAINING, OUTCOMES),
            new_state=lambda number, count: BatchState(load_recipe=load_recipe),
            step=batch.step,
            needs=batch.needs,
            is_ticked=True,
        ),
        *(
            Processor(
                name="relay",
                topic=topic,
                state_topic=RELAY_STATE,
                outputs=(INTERACTIONS, EXPERIENCE),
                new_state=lambda number, count: relay.RelayState(num_partitions=count),
                step=relay.step,
                needs=relay.needs,
            )
            for topic in (COMMANDS, CANDIDATES, RELEASES)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who is told what Faust knows."""

    assign: Callable[[Iterable[Place]], Awaitable[None]]
    """These partitions are ours now, and no others."""
    revoke: Callable[[], None]
    """Nobody knows what is ours until the next assignment."""
    deliver: Callable[[Iterable[Record]], Awaitable[None]]
    """Records came."""
    stop: Callable[[], Awaitable[None]]
    """The worker ends."""


def faust_app(settings: WorkerSettings, group: str, topics: Iterable[str], listener: Listener) -> faust.App:
    """Make the app: one agent a topic, raw bytes, no tables, no commits of its own."""
    app = faust.App(
        group,
        broker=f"kafka://{settings.access.bootstrap.replace(',', ';kafka://')}",
        broker_credentials=_credentials(settings.access),
        store="memory://",
        datadir=str(settings.folder),
        key_serializer="raw",
        value_serializer="raw",
        topic_disable_leader=True,
        web_enabled=False,
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_rebalance_timeout=REBALANCE_TIMEOUT_S,
        stream_wait_empty=False,  # what Faust holds is in the log; a rebalance must wait for nobody
        broker_commit_livelock_soft_timeout=UNCOMMITTED_S,
        stream_processing_timeout=UNCOMMITTED_S,
        consumer_auto_offset_reset="earliest",
    )
    app.transport = _CommittedTransport([URL(f"kafka://{settings.access.bootstrap}")], app)
    for topic in topics:
        source = app.topic(
            topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
        )
        app.agent(source, name=topic, concurrency=1)(_agent(listener))
    _listen(app, listener)
    return app


class NamelessWorker(faust.Worker):
    """Faust's own entry, which leaves the process its title and the terminal alone."""

    def _setproctitle(self, info: str, *, ident: str | None = None) -> None:
        """Keep the title that the command gave."""

    def _schedule_shutdown(self, signal: Any) -> None:
        """Stop in order, but not for ever: Faust may wait for a rebalance, and the log has everything."""
        limit = Timer(STOP_S_MAX, _stop_now)
        limit.daemon = True
        limit.start()
        super()._schedule_shutdown(signal)


def _stop_now() -> None:
    _log.warning("stop_forced", after_s=STOP_S_MAX)
    os._exit(0)


def run_app(app: faust.App) -> None:
    """Run until a signal says stop; ends in SystemExit."""
    worker = NamelessWorker(app, loglevel="ERROR", quiet=True, redirect_stdouts=False, override_logging=False)
    worker.execute_from_commandline()


def _agent(listener: Listener) -> Callable[[Any], Awaitable[None]]:
    async def deliver(stream: Any) -> None:
        batches: AsyncIterable[list[Any]] = stream.take_events(DELIVERED_MAX, within=DELIVERED_WITHIN_S)
        async for events in batches:
            await listener.deliver([_record(event.message) for event in events])

    return deliver


def _record(message: Any) -> Record:
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=tuple([Header(name=name, value=value) for name, value in pairs]),
        timestamp_us=round(message.timestamp * 1_000) * 1_000,
    )


def _listen(app: faust.App, listener: Listener) -> None:
    async def assigned(_: faust.App, assigned: Iterable[Any] = (), *__: Any, **___: Any) -> None:
        await listener.assign([Place(place.topic, place.partition) for place in assigned])

    async def revoked(_: faust.App, *__: Any, **___: Any) -> None:
        listener.revoke()

    async def stopping(_: faust.App, *__: Any, **___: Any) -> None:
        await listener.stop()

    handlers: tuple[tuple[Any, Any], ...] = (
        (app.on_partitions_assigned, assigned),
        (app.on_partitions_revoked, revoked),
        (app.on_before_shutdown, stopping),
    )
    for told, handler in handlers:
        told.connect(handler)


class _CommittedThread(AIOKafkaConsumerThread):
    """Reads what was committed only, commits nothing (STREAMS 1, 4), and waits for an absent cluster."""

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        be_patient(consumer._client)
        consumer._isolation_level = "read_committed"
        return consumer

    async def _commit(self, offsets: Any) -> bool:
        return True


class _CommittedConsumer(Consumer):
    """A consumer with such a thread."""

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _CommittedThread(self, loop=self.loop, beacon=self.beacon)


class _CommittedTransport(Transport):
    """A transport with such a consumer."""

    Consumer = _CommittedConsumer


def _credentials(access: KafkaAccess) -> Any:
    options = client_options(access, BusLimits())
    context = options.get("ssl_context")
    if access.protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=access.mechanism,
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)
