"""Shell: a gateway in a thread of its own, on a free port, with a recorder in memory."""

import asyncio
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import uvloop
from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from gateway.auth import Token
from gateway.calls import Recorder
from gateway.catalog import Catalog
from gateway.composed import Parts, gateway_app, own_checks
from gateway.engines import Engines
from gateway.gate import Gate
from gateway.health import Health
from gateway.metrics import CallMetrics
from gateway.record import PROCESSED
from gateway.sampling import PLAIN_SAMPLING
from gateway.server import bound_socket, server_for
from gateway.serving import Serving
from gateway.settings import CallSettings
from schemas.codec import decode, encode
from schemas.errors import UnavailableError
from schemas.events import Event, InferenceCompleted
from schemas.ids import Receipt, ReleaseId, ScenarioName, Sha256

RECEIPT_KEY = b"a key for tests, 32 bytes long.."
RELEASE = ReleaseId("0" * 39 + "a")
PUBLIC_MODEL = "scripted"

CALL_SETTINGS = CallSettings(
    public_model=PUBLIC_MODEL,
    receipt_keys=(RECEIPT_KEY,),
    sampling_defaults=PLAIN_SAMPLING,
    body_bytes_max=1_048_576,
    concurrency_max=1_024,
    timeout_s=30.0,
    stream_receipt="chunk",
)


class MemoryRecorder:
    """Keeps events, each through the codec, in the order in which they became durable."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.is_broken = False
        self.is_full = False
        self._arrived = threading.Condition()

    async def append(self, *events: Event) -> None:
        """Keep events. Raises UnavailableError while broken."""
        if self.is_broken:
            raise UnavailableError("expected a disk, got none: attach one", reason="outbox_unusable")
        with self._arrived:
            self.events += [decode(encode(event)) for event in events]
            self._arrived.notify_all()

    def refuse_when_full(self) -> None:
        """Refuse calls while full."""
        if self.is_full:
            raise UnavailableError("expected room, got none: wait for Kafka", reason="outbox_full")

    def calls(self) -> list[InferenceCompleted]:
        """Give the calls kept."""
        return [event for event in self.events if isinstance(event, InferenceCompleted)]

    def call(self, receipt: str, timeout_s: float = 10.0) -> InferenceCompleted:
        """Wait for a call's event."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self._find(receipt) is not None, timeout_s), receipt
        found = self._find(receipt)
        assert found is not None
        return found

    def next_call(self, number: int = 0, timeout_s: float = 10.0) -> InferenceCompleted:
        """Wait for the call of this number."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.calls()) > number, timeout_s)
        return self.calls()[number]

    def _find(self, receipt: str) -> InferenceCompleted | None:
        return next((call for call in self.calls() if call.receipt == Receipt(receipt)), None)


@dataclass(slots=True, kw_only=True)
class GatewayRig:
    """A running gateway."""

    url: str = ""
    recorder: MemoryRecorder = field(default_factory=MemoryRecorder)
    catalog: Catalog = field(default_factory=lambda: Catalog((ScenarioName("default"),)))
    gate: Gate | None = None
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    lines: list[dict[str, object]] = field(default_factory=list)


def serving(number: int = 0, model: str = "scripted") -> Serving:
    """A release that serves."""
    return Serving(
        release_id=ReleaseId(f"{number:039x}a"),
        release_seq=number,
        engine_model=model,
        tokenizer_digest=Sha256("1" * 64),
        chat_template_digest=Sha256("2" * 64),
    )


@contextmanager
def running_gateway(
    engine_urls: Sequence[str],
    *,
    scenarios: Sequence[str] = ("default",),
    tokens: Sequence[Token] = (),
    settings: CallSettings = CALL_SETTINGS,
    engine_wait_s: float = 0.0,
    model: str = "scripted",
    recorder: Recorder | None = None,
    routers: Sequence[APIRouter] = (),
) -> Iterator[GatewayRig]:
    """Run a gateway in a thread, in front of engines."""
    rig = GatewayRig(catalog=Catalog(tuple(ScenarioName(name) for name in scenarios)))
    for name in scenarios:
        state = rig.catalog.add(ScenarioName(name))
        state.serving = serving(model=model)
        state.first_release_id = RELEASE
    runner = _Runner(
        rig,
        engine_urls,
        recorder or rig.recorder,
        tokens=tokens,
        settings=settings,
        engine_wait_s=engine_wait_s,
        routers=routers,
    )
    runner.start()
    try:
        yield rig
    finally:
        runner.stop()


class _Runner:
    def __init__(
        self,
        rig: GatewayRig,
        engine_urls: Sequence[str],
        recorder: Recorder,
        *,
        tokens: Sequence[Token],
        settings: CallSettings,
        engine_wait_s: float,
        routers: Sequence[APIRouter],
    ) -> None:
        self._rig = rig
        self._recorder = recorder
        self._engine_urls = engine_urls
        self._tokens = tokens
        self._settings = settings
        self._engine_wait_s = engine_wait_s
        self._routers = routers
        self._started, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(20)
        assert self._rig.url, "the gateway did not start"

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        finally:
            self._started.set()

    async def _serve(self) -> None:
        rig = self._rig
        rig.gate = Gate(wait_s_max=2.0)
        async with Engines(self._engine_urls, wait_s=self._engine_wait_s) as engines:
            for engine in engines.engines:
                engine.logprobs_mode = PROCESSED
            server = server_for(gateway_app(self._parts(engines, rig.gate)))
            listener = bound_socket("127.0.0.1", 0)
            serving_task = asyncio.create_task(server._serve([listener]))
            while not server.started and not serving_task.done():
                await asyncio.sleep(0.005)
            rig.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self._started.set()
            await asyncio.to_thread(self._stopped.wait)
            server.should_exit = server.force_exit = True
            await serving_task

    def _parts(self, engines: Engines, gate: Gate) -> Parts:
        return Parts(
            catalog=self._rig.catalog,
            engines=engines,
            recorder=self._recorder,
            metrics=CallMetrics(self._rig.registry),
            gate=gate,
            health=Health(checks=own_checks(self._rig.catalog, engines), registry=self._rig.registry),
            tokens=self._tokens,
            settings=self._settings,
            log=ListedLines(self._rig.lines),
            routers=self._routers,
        )


LINES_MAX = 10_000


class ListedLines:
    """Keeps the latest canonical lines in a list."""

    def __init__(self, lines: list[dict[str, object]]) -> None:
        self._lines = lines

    def answered(self, fields: dict[str, object]) -> None:
        """Keep a line."""
        self._lines.append(fields)
        del self._lines[:-LINES_MAX]

    def failed(self, **fields: object) -> None:
        """Keep the trace of a bug."""
        self._lines.append({**fields, "trace": traceback.format_exc()})


def with_settings(**changes: object) -> CallSettings:
    """Give the settings of the rig with something changed."""
    return replace(CALL_SETTINGS, **changes)  # type: ignore[arg-type]  # each test names real fields
