"""Shell: the engines of this gateway: which one takes a call, what its refusals mean, and whether it is up.

An engine belongs to one gateway. A route prefers one engine, whose cache knows its conversation, as long as
that one is not much busier than the idlest.

Next: gateway/dialect.py
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson
import structlog

from gateway.engine_connection import ConnectionClosedError, EngineAnswer, EngineDoor, EngineDownError
from gateway.errors import ENGINE_STATUSES_PASSED, EngineRefusedError
from gateway.probe import UNKNOWN_LOGPROBS, logprobs_mode_of, probe_request
from schemas.errors import RejectedError, UnavailableError
from schemas.ids import Route

STICKY_LEAD_MAX = 4
"""Requests in flight by which a route's own engine may exceed the idlest one."""
RETRIES_MAX = 2
"""Of a request whose idle connection the engine had closed."""
IDLE_S_MAX = 4.0
"""Shorter than the 5 s after which the engine closes idle connections."""
LOOK_S = 0.5
"""How often an engine that is down is looked at."""
WATCH_S = 1.0
"""How often one that is up is looked at; none ends and starts again within it."""
HEALTH_S_MAX = 3.0
"""How long an engine may take to say that it is well; slower is neither up nor down."""
PROBE_REST_FIRST_S, PROBE_REST_S_MAX = 5.0, 60.0
"""Between two tries to find out which logprobs an engine gives."""
ASIDE_S_MAX = 30.0
"""Deadline of questions that are no client's."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class NotAdmittedError(UnavailableError):
    """The engine runs, and is not known to hold the release that serves."""

    def __init__(self, url: str) -> None:
        """Name the engine."""
        super().__init__(
            f"expected the engine at {url} to hold the release that serves, it is being given it: "
            "retry after the seconds of Retry-After",
            reason="engine_not_ready",
        )


class Engine:
    """One engine."""

    __slots__ = ("door", "is_admitted", "is_down", "logprobs_mode", "num_in_flight", "url")

    def __init__(self, url: str, connector: aiohttp.TCPConnector) -> None:
        """Take it to be up until it is not."""
        self.url = url
        self.door = EngineDoor(url, connector)
        self.num_in_flight = 0
        self.is_down = False
        self.is_admitted = True
        """Whether it holds the release that serves, as far as anybody has to look."""
        self.logprobs_mode = UNKNOWN_LOGPROBS

    async def post(self, path: str, body: bytes) -> EngineAnswer:
        """Send a call. Raises EngineDownError, EngineRefusedError, UnavailableError."""
        for attempt in range(RETRIES_MAX + 1):
            try:
                answer = await self.door.post(path, body)
            except ConnectionClosedError:
                if attempt == RETRIES_MAX:
                    raise
            else:
                break
        if answer.status != 200:
            raise refusal(answer.status, await answer.read(), answer.retry_after)
        return answer


class Engines:
    """All engines of this gateway, and the connections to them."""

    def __init__(
        self, urls: Sequence[str], *, wait_s: float, guard: Callable[[], None] | None = None
    ) -> None:
        """Take the addresses.

        `wait_s` is how long a call waits for an engine that is down. With a `guard`, an engine that comes up
        takes no call until somebody has looked at what it holds and set `is_admitted`; the guard is called to
        say that there is something to look at.
        """
        self._urls = urls
        self._wait_s = wait_s
        self._guard = guard
        self._looks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Open the pool and look at every engine."""
        self._connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S_MAX)
        self._session = aiohttp.ClientSession(
            connector=self._connector, timeout=aiohttp.ClientTimeout(total=ASIDE_S_MAX)
        )
        self.engines = tuple(Engine(url, self._connector) for url in self._urls)
        for engine in self.engines:
            engine.is_admitted = self._guard is None
            self._look_after(engine)
            if self._guard is not None:
                self._begin(self._watch(engine))
        return self

    @property
    def session(self) -> aiohttp.ClientSession:
        """What asks an engine things that are no client's call."""
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        for task in self._looks:
            task.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)
        await self._session.close()

    def choose(self, route: Route) -> Engine:
        """Choose the engine of a call. Raises EngineDownError when all are down."""
        if len(self.engines) == 1:
            return self.engines[0]
        admitted = [engine for engine in self.engines if engine.is_admitted] or self.engines
        up = [engine for engine in admitted if not engine.is_down] or admitted
        idlest = min(up, key=lambda engine: engine.num_in_flight)
        own = up[int(route, 16) % len(up)]
        return own if own.num_in_flight - idlest.num_in_flight <= STICKY_LEAD_MAX else idlest

    async def post(self, route: Route, path: str, body: bytes) -> tuple[Engine, EngineAnswer]:
        """Send a call to the engine of its route; waits for a dead one as long as is set."""
        if not self._wait_s:
            return await self._post_once(route, path, body)
        deadline_s = asyncio.get_running_loop().time() + self._wait_s
        while True:
            try:
                return await self._post_once(route, path, body)
            except (EngineDownError, NotAdmittedError):
                if asyncio.get_running_loop().time() >= deadline_s:
                    raise
            await asyncio.sleep(min(LOOK_S, self._wait_s))

    async def _post_once(self, route: Route, path: str, body: bytes) -> tuple[Engine, EngineAnswer]:
        for _ in self.engines:
            engine, answer = self.choose(route), None
            if not engine.is_admitted:
                raise NotAdmittedError(engine.url)
            engine.num_in_flight += 1
            try:
                answer = await engine.post(path, body)
            except EngineDownError as error:
                self._on_down(engine)
                down = error
            finally:
                if answer is None:
                    engine.num_in_flight -= 1
            if answer is not None:
                return engine, answer
        raise down

    def _on_down(self, engine: Engine) -> None:
        if not engine.is_down:
            engine.is_down = True
            engine.logprobs_mode = UNKNOWN_LOGPROBS  # it may come back with other flags
            _log.warning("engine_down", engine=engine.url)
            self._look_after(engine)

    def expect_restart(self, engine: Engine) -> None:
        """Know that an engine was ended, and wait until it is back."""
        self._send_away(engine)
        self._on_down(engine)

    def _send_away(self, engine: Engine) -> None:
        if self._guard is not None:
            engine.is_admitted = False

    def _look_after(self, engine: Engine) -> None:
        self._begin(self._until_up(engine))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _watch(self, engine: Engine) -> None:
        """See an engine go even when nobody calls: what comes back later may hold other weights."""
        while True:
            await asyncio.sleep(WATCH_S)
            if not engine.is_down and await self._health(engine) is False:
                self._send_away(engine)
                self._on_down(engine)

    async def _until_up(self, engine: Engine) -> None:
        while not (found := await self._health(engine)):
            engine.is_down = True
            if found is False:
                self._send_away(engine)
            await asyncio.sleep(LOOK_S)
        engine.is_down = False
        if self._guard is not None:
            self._guard()
        await self._learn(engine)
        _log.info("engine_up", engine=engine.url, logprobs_mode=engine.logprobs_mode)
        rest_s = PROBE_REST_FIRST_S
        while engine.logprobs_mode == UNKNOWN_LOGPROBS and not engine.is_down:
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, PROBE_REST_S_MAX)
            await self._learn(engine)

    async def _learn(self, engine: Engine) -> None:
        """Find out which logprobs it gives; one that is busy or says nothing of use is asked again later."""
        if engine.logprobs_mode != UNKNOWN_LOGPROBS:
            return
        try:
            names = await self.model_names(engine)
            mode, reason = await self.probe(engine, names[0]), "undecided"
        except (UnavailableError, RejectedError) as error:
            mode, reason = UNKNOWN_LOGPROBS, error.reason
        if mode == UNKNOWN_LOGPROBS:
            _log.warning("engine_not_probed", engine=engine.url, reason=reason)
        elif not engine.is_down:
            engine.logprobs_mode = mode

    async def _health(self, engine: Engine) -> bool | None:
        """Whether an engine answers; None when it is too slow to say."""
        try:
            async with asyncio.timeout(HEALTH_S_MAX), self._session.get(f"{engine.url}/health") as answer:
                return answer.status == 200
        except TimeoutError:
            return None
        except (aiohttp.ClientError, OSError):
            return False

    async def are_ready(self) -> bool:
        """Whether every engine answers now, and takes calls."""
        are_well = await asyncio.gather(*(self._health(engine) for engine in self.engines))
        return all(are_well) and all(engine.is_admitted for engine in self.engines)

    async def model_names(self, engine: Engine) -> tuple[str, ...]:
        """Ask an engine what it serves. Raises UnavailableError."""
        answer = await self.ask_aside(engine, "/v1/models")
        try:
            names = tuple(str(model["id"]) for model in answer["data"])
        except (KeyError, TypeError) as error:
            raise _nonsense("a list of models", "another shape") from error
        if not names:
            raise _nonsense("a model", "an empty list")
        return names

    async def probe(self, engine: Engine, model: str) -> str:
        """Find out whether logprobs follow the temperature (RULINGS 1). Raises UnavailableError."""
        answers = [
            await self.ask_aside(engine, "/v1/chat/completions", probe_request(model, temperature))
            for temperature in (1.0, 0.3)
        ]
        return logprobs_mode_of(answers[0], answers[1])

    async def ask_aside(self, engine: Engine, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask an engine something that is no client's call. Raises UnavailableError, EngineRefusedError."""
        data = None if body is None else orjson.dumps(body)
        method = "GET" if data is None else "POST"
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.request(method, engine.url + path, data=data, headers=headers) as answer:
                raw = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EngineDownError(engine.url, error) from error
        if answer.status != 200:
            raise refusal(answer.status, raw, answer.headers.get("Retry-After"))
        return parsed(raw)


def parsed(raw: bytes) -> dict[str, Any]:
    """Read an engine's JSON object. Raises UnavailableError."""
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _nonsense("JSON", "another text") from error
    if not isinstance(answer, dict):
        raise _nonsense("a JSON object", type(answer).__name__)
    return answer


def refusal(status: int, raw: bytes, retry_after: str | None) -> UnavailableError | EngineRefusedError:
    """Say what an engine's refusal means for the client (RULINGS 18)."""
    if status not in ENGINE_STATUSES_PASSED:
        return _nonsense("an answer", f"status {status}")
    message, param = _what_it_said(raw)
    return EngineRefusedError(message, status=status, param=param, retry_after=retry_after)


def _what_it_said(raw: bytes) -> tuple[str, str | None]:
    try:
        said = orjson.loads(raw)
    except orjson.JSONDecodeError:
        said = {}
    error = said.get("error", said) if isinstance(said, dict) else {}
    if not isinstance(error, dict):
        return str(error), None
    param = error.get("param")
    return str(error.get("message") or "the engine refused the request"), param if param is None else str(
        param
    )


def _nonsense(expected: str, got: str) -> UnavailableError:
    return UnavailableError(
        f"expected {expected} from the engine, got {got}: see its logs, then send the call again",
        reason="engine_nonsense",
    )
