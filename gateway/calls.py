"""Shell: a call from its request to its last byte: receipt, engine, capture, event, answer, in this order.

The event is durable before the last byte leaves. What is asked and answered in which words is the dialect's.

Next: gateway/engines.py
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from gateway.auth import require_scenario
from gateway.capture import Capture
from gateway.catalog import Catalog, require_serving
from gateway.dialect import Ask, Dialect, StreamTranslator
from gateway.engine_connection import EngineAnswer
from gateway.engines import Engine, Engines, parsed
from gateway.errors import problem_of
from gateway.exchange import ClientLeftError, Exchange, Header, parse_object
from gateway.gate import Gate
from gateway.metrics import CallMetrics
from gateway.record import CallFacts, completed
from gateway.serving import ScenarioState, Serving, Spans, joined_salt
from gateway.settings import CallSettings
from gateway.sse import DONE, SseParser
from gateway.vigil import Vigil
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.events import CallOutcome, Event
from schemas.ids import Receipt, Route, mint_receipt, route_of_conversation, route_of_session
from schemas.packed import JsonBytes


class Recorder(Protocol):
    """Where events are kept: the outbox."""

    async def append(self, *events: Event) -> None:
        """Keep events; returns when they are durable. Raises UnavailableError."""

    def refuse_when_full(self) -> None:
        """Raise UnavailableError when no further call may begin."""


CreateScenario = Callable[[str], Awaitable[None]]
"""Makes a scenario of this name. Raises RejectedError."""


@dataclass(slots=True, kw_only=True)
class Call:
    """A call that is being answered."""

    exchange: Exchange
    dialect: Dialect
    ask: Ask
    raw: bytes
    state: ScenarioState
    serving: Serving
    route: Route
    receipt: Receipt | None
    spans: Spans
    engine: Engine | None = None


class Calls:
    """Answers calls of every dialect."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        engines: Engines,
        recorder: Recorder,
        metrics: CallMetrics,
        gate: Gate,
        settings: CallSettings,
        create: CreateScenario | None = None,
    ) -> None:
        """Take the parts that a call passes through; `create` makes the scenario that a call names first."""
        self._create = create
        self._catalog = catalog
        self._engines = engines
        self._recorder = recorder
        self._metrics = metrics
        self._gate = gate
        self._settings = settings
        self._num_open = 0

    def handler(self, dialect: Dialect) -> Callable[[Exchange], Any]:
        """Give the handler of a dialect's route."""

        async def handle(exchange: Exchange) -> None:
            await self.answer(dialect, exchange)

        return handle

    async def answer(self, dialect: Dialect, exchange: Exchange) -> None:
        """Answer one call. Raises ReefError before a first byte, never after."""
        exchange.api = dialect.api
        state = await self._resolve(exchange)
        raw = await exchange.body(self._settings.body_bytes_max)  # before it counts: the slow take no place
        if self._num_open >= self._settings.concurrency_max:
            raise RejectedError(
                f"expected at most {self._settings.concurrency_max} calls at once, got one more: "
                "retry after the seconds of Retry-After",
                reason="over_concurrency",
            )
        self._num_open += 1
        try:
            call = await self._begin(dialect, exchange, state, raw)
            try:
                await (self._stream(call) if call.ask.is_stream else self._buffer(call))
            finally:
                call.state.streams.remove(call.spans)
        finally:
            self._num_open -= 1

    async def _resolve(self, exchange: Exchange) -> ScenarioState:
        name = exchange.head.scenario
        if self._create is not None and name is not None and name not in self._catalog:
            require_scenario(exchange.grant, name)
            await self._create(name)
        state = self._catalog.resolve(name, exchange.grant)
        exchange.scenario = state.name
        _require_unpinned(exchange.head.release_pin, state)
        self._recorder.refuse_when_full()
        return state

    async def _begin(self, dialect: Dialect, exchange: Exchange, state: ScenarioState, raw: bytes) -> Call:
        ask = dialect.ask(parse_object(raw), self._settings.sampling_defaults)
        if not self._gate.is_open:
            await self._gate.passed()
        serving = require_serving(state)
        route = _route(state, exchange, ask)
        receipt = self._mint(state, route) if exchange.head.is_recorded else None
        exchange.receipt, exchange.release_id = receipt, serving.release_id
        spans = state.streams.open(serving, is_buffered=not ask.is_stream)
        return Call(
            exchange=exchange,
            dialect=dialect,
            ask=ask,
            raw=raw,
            state=state,
            serving=serving,
            route=route,
            receipt=receipt,
            spans=spans,
        )

    def _mint(self, state: ScenarioState, route: Route) -> Receipt:
        return mint_receipt(
            state.name,
            route,
            time_ms=time.time_ns() // 1_000_000,
            nonce=os.urandom(6),
            key=self._settings.receipt_keys[0],
        )

    async def _post(self, call: Call) -> EngineAnswer:
        upstream = call.ask.upstream
        upstream["model"] = call.serving.engine_model
        salt = upstream.get("cache_salt")
        own = call.serving.cache_salt
        upstream["cache_salt"] = joined_salt(own, str(salt)) if salt else own
        call.engine, answer = await self._engines.post(call.route, call.ask.path, orjson.dumps(upstream))
        return answer

    async def _buffer(self, call: Call) -> None:
        capture = Capture()
        try:
            with self._vigil(call):
                raw = await (await self._post(call)).read()
        except ClientLeftError:
            await self._record(call, capture, CallOutcome.CLIENT_ABORTED, b"{}")
            raise
        finally:
            _leave(call)
        answer = parsed(raw)
        self._saw(call, capture.answer(answer))
        body = call.dialect.answer(call.ask, answer, raw, self._settings.public_model)
        is_kept = await self._record(call, capture, CallOutcome.COMPLETED, body)
        await call.exchange.respond(200, body, _headers(call, has_receipt=is_kept))

    async def _stream(self, call: Call) -> None:
        capture = Capture()
        translator = call.dialect.translator(call.ask, self._settings.public_model)
        outcome, broken = CallOutcome.COMPLETED, b""
        try:
            with self._vigil(call):
                await self._relay(call, capture, translator)
        except ClientLeftError:
            outcome = CallOutcome.CLIENT_ABORTED
        except UnavailableError as error:
            if not call.exchange.is_started:
                raise
            outcome, broken = CallOutcome.UPSTREAM_FAILED, translator.broken(problem_of(error))
        finally:
            _leave(call)
        whole = call.dialect.whole(call.ask, capture, self._settings.public_model)
        is_kept = await self._record(call, capture, outcome, whole)
        await self._finish(call, capture, translator, outcome, broken, is_kept=is_kept)

    async def _relay(self, call: Call, capture: Capture, translator: StreamTranslator) -> None:
        """Pass chunks on as they come, and look at each on its way."""
        answer = await self._post(call)
        is_whole = False
        try:
            await call.exchange.start_stream(_headers(call, has_receipt=True))
            parser = SseParser()
            while not is_whole and (data := await answer.read_some()):
                pieces, is_whole = self._translate(call, capture, translator, parser.feed(data))
                if pieces:
                    await call.exchange.write(pieces)
        finally:
            answer.release() if is_whole else answer.close()
        if not is_whole:
            raise UnavailableError(
                "expected the engine to finish its stream, got its end without [DONE]: send the call again",
                reason="engine_broke_off",
            )

    def _translate(
        self, call: Call, capture: Capture, translator: StreamTranslator, payloads: list[bytes]
    ) -> tuple[bytes, bool]:
        pieces: list[bytes] = []
        for payload in payloads:
            if payload == DONE:
                return b"".join(pieces), True
            chunk = parsed(payload)
            if "error" in chunk:
                raise UnavailableError(
                    "expected the engine to finish its stream, got an error from it: send the call again",
                    reason="engine_broke_off",
                )
            self._saw(call, capture.chunk(chunk))
            pieces.append(translator.chunk(chunk, payload))
        return b"".join(pieces), False

    def _saw(self, call: Call, num_tokens: int) -> None:
        call.exchange.num_tokens += num_tokens
        call.spans.add(num_tokens, asyncio.get_running_loop().time())

    async def _finish(
        self,
        call: Call,
        capture: Capture,
        translator: StreamTranslator,
        outcome: CallOutcome,
        broken: bytes,
        *,
        is_kept: bool,
    ) -> None:
        match outcome:
            case CallOutcome.COMPLETED:
                is_named = is_kept and self._settings.stream_receipt == "chunk"
                await call.exchange.end(translator.ending(capture, call.receipt if is_named else None))
            case CallOutcome.UPSTREAM_FAILED:
                # Left open on purpose: the server closes the connection, and no client takes it for the end.
                call.exchange.result = outcome
                await call.exchange.break_off(broken)
            case _:
                raise ClientLeftError

    async def _record(self, call: Call, capture: Capture, outcome: CallOutcome, response: bytes) -> bool:
        """Keep the event; whether it is kept. An answer is never lost because its record is."""
        call.exchange.result = outcome
        if call.receipt is None:
            return False
        event = completed(
            self._facts(call, call.receipt),
            capture,
            outcome=outcome,
            response=response,
            weight_spans=call.spans.finish(),
            completed_at_us=time.time_ns() // 1000,
        )
        self._metrics.captured(event)
        try:
            await self._recorder.append(event)
        except ReefError as error:
            self._metrics.lost(call.state.name, error.reason)
            return False
        return True

    def _facts(self, call: Call, receipt: Receipt) -> CallFacts:
        head = call.exchange.head
        return CallFacts(
            receipt=receipt,
            scenario=call.state.name,
            route=call.route,
            session=head.session,
            api=call.dialect.api,
            model=self._settings.public_model,
            request=JsonBytes(call.raw),
            sampling=call.ask.sampling,
            faults=call.ask.faults,
            logprobs_mode=call.engine.logprobs_mode if call.engine else "unknown",
            request_id=call.exchange.request_id,
            serving=call.serving,
            tags=head.tags,
            is_opted_out=head.is_opted_out,
            started_at_us=call.exchange.started_at_us,
        )

    def _vigil(self, call: Call) -> Vigil:
        return Vigil(call.exchange, timeout_s=self._settings.timeout_s)


def _leave(call: Call) -> None:
    if call.engine is not None:
        call.engine.num_in_flight -= 1


def _route(state: ScenarioState, exchange: Exchange, ask: Ask) -> Route:
    session = exchange.head.session
    if session is not None:
        return route_of_session(state.name, session)
    return route_of_conversation(state.name, ask.system, ask.user)


def _require_unpinned(pin: str | None, state: ScenarioState) -> None:
    if pin is not None and pin != state.first_release_id:
        raise ConflictError(
            f"expected no x-reef-release-id but the scenario's first release, got {pin[:80]!r}: "
            "requests do not pin versions, leave it out",
            reason="release_not_pinnable",
        )


def _headers(call: Call, *, has_receipt: bool) -> tuple[Header, ...]:
    release: Header = (b"x-reef-release-id", call.serving.release_id.encode("ascii"))
    if call.receipt is None or not has_receipt:
        return (release,)
    return ((b"x-reef-agent-record-id", call.receipt.encode("ascii")), release)
