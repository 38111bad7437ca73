"""Shell: an engine that plays a script: a real HTTP server on loopback, with vLLM's shapes and misfortunes.

tests/contract/test_engine_shapes.py runs the same assertions on it and on the real engine.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from aiohttp import web

MODEL = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedToken:
    """A token and what an engine says of it."""

    token_id: int
    text: str = ""
    logprob: float = -0.5
    tool_call: dict[str, Any] | None = None
    """A piece of a tool call, in the form of a delta."""
    reasoning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the engine will do with one request."""

    prompt_ids: Sequence[int] = (1, 2, 3)
    choices: Sequence[Sequence[ScriptedToken]] = ((ScriptedToken(token_id=7, text="Paris."),),)
    finish_reason: str = "stop"
    stop_reason: str | None = None
    write_bytes: int | None = None
    """Cut the stream into writes of so many bytes; None writes an event at a time."""
    chunk_delay_s: float = 0.0
    breaks_after: int | None = None
    """Close the connection after so many tokens of a stream, or before the answer."""
    fails_after: int | None = None
    """Write an error event after so many tokens, as the engine does when it dies inside."""
    stalls_after: int | None = None
    """Say nothing more after so many tokens, until the client leaves."""
    status: int = 200
    raw: bytes | None = None
    """Answer these bytes, whatever they are."""
    retry_after: str | None = None
    has_ids: bool = True
    num_reported: int | None = None
    """`usage.completion_tokens`, when it is not the truth."""


def words(text: str, first_id: int = 100) -> tuple[ScriptedToken, ...]:
    """Make a token of each word."""
    pieces = [piece + " " for piece in text.split(" ")]
    return tuple(
        ScriptedToken(token_id=first_id + n, text=piece, logprob=-0.125 * (n + 1))
        for n, piece in enumerate(pieces)
    )


class Weights(Protocol):
    """Weight routes that an engine may have."""

    running: asyncio.Event

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""

    def models(self) -> list[dict[str, Any]]:
        """What /v1/models lists."""


@dataclass(slots=True)
class ScriptedUpstream:
    """The engine. `url` is where it answers; `asked` is what it was asked."""

    script: Script | Callable[[dict[str, Any]], Script] = field(default_factory=Script)
    asked: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released each time that a client leaves before the end."""
    num_open: int = 0
    port: int = 0
    weights: "Weights | None" = None
    """Its weight routes; None: it has none."""
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Begin to answer, on the port that it had before if it had one."""
        app = web.Application(client_max_size=64 * 1_048_576)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/tokenize", self._tokenize)
        if self.weights is not None:
            self.weights.add_to(app)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=2_048, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End, dropping every connection."""
        if self._runner is not None:
            for site in list(self._runner.sites):
                await site.stop()
            await asyncio.sleep(0.02)  # a connection accepted in this very moment is closed with the others
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, request: web.Request) -> web.Response:
        models = [{"id": MODEL, "object": "model"}] if self.weights is None else self.weights.models()
        return web.json_response({"object": "list", "data": models})

    async def _tokenize(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.asked.append(asked)
        return web.json_response({"count": 11, "max_model_len": 2048, "tokens": list(range(11))})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, _ChatForm())

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, _CompletionsForm())

    async def _play(self, request: web.Request, form: "_Form") -> web.StreamResponse:
        asked = orjson.loads(await request.read())
        self.asked.append(asked)
        script = self.script if isinstance(self.script, Script) else self.script(asked)
        self.num_open += 1
        try:
            return await self._answer(request, asked, script, form)
        except (asyncio.CancelledError, ConnectionResetError):
            self.left.release()
            raise
        finally:
            self.num_open -= 1

    async def _answer(
        self, request: web.Request, asked: dict[str, Any], script: Script, form: "_Form"
    ) -> web.StreamResponse:
        if script.raw is not None or script.status != 200:
            headers = {"Retry-After": script.retry_after} if script.retry_after else {}
            body = script.raw or orjson.dumps(_engine_error(script.status))
            return web.Response(
                body=body, status=script.status, headers=headers, content_type="application/json"
            )
        if asked.get("stream"):
            return await self._stream(request, asked, script, form)
        if script.stalls_after is not None:
            await asyncio.sleep(3_600)
        if script.breaks_after is not None:
            assert request.transport is not None
            request.transport.abort()
        await asyncio.sleep(script.chunk_delay_s)
        if self.weights is not None:
            await self.weights.running.wait()
        return web.Response(body=orjson.dumps(form.whole(asked, script)), content_type="application/json")

    async def _stream(
        self, request: web.Request, asked: dict[str, Any], script: Script, form: "_Form"
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        for num_tokens, event in form.events(asked, script):
            if num_tokens == script.breaks_after:
                assert request.transport is not None
                request.transport.close()
                return answer
            if num_tokens == script.fails_after:
                await answer.write(b"data: " + orjson.dumps(_engine_error(500)) + b"\n\n")
                break
            if num_tokens == script.stalls_after:
                await asyncio.sleep(3_600)
            if self.weights is not None:
                await self.weights.running.wait()
            await _write_cut(answer, event, script.write_bytes)
            await asyncio.sleep(script.chunk_delay_s)
        await _write_cut(answer, b"data: [DONE]\n\n", script.write_bytes)
        await answer.write_eof()
        return answer


async def _write_cut(answer: web.StreamResponse, data: bytes, write_bytes: int | None) -> None:
    size = write_bytes or len(data)
    for at in range(0, len(data), size):
        await answer.write(data[at : at + size])
        if write_bytes:
            await asyncio.sleep(0)


def _engine_error(status: int) -> dict[str, Any]:
    return {
        "error": {"message": f"scripted {status}", "type": "scripted", "param": "messages", "code": status}
    }


class _Form:
    """How one API writes an answer."""

    kind = ""
    chunk_kind = ""

    def events(self, asked: dict[str, Any], script: Script) -> Iterator[tuple[int, bytes]]:
        """Yield (tokens before it, event) in the order of vLLM's streams."""
        num_tokens = 0
        for index in range(len(script.choices)):
            yield 0, self._event(asked, script, self.opening(asked, script, index))
        longest = max((len(tokens) for tokens in script.choices), default=0)
        for position in range(longest):
            for index, tokens in enumerate(script.choices):
                if position < len(tokens):
                    is_last = position == len(tokens) - 1
                    choice = self.piece(asked, script, index, tokens[position], is_last=is_last)
                    yield num_tokens, self._event(asked, script, {"choices": [choice]})
                    num_tokens += 1
        if (asked.get("stream_options") or {}).get("include_usage"):
            usage = {"choices": [], "usage": usage_of(script)}
            yield num_tokens, self._event(asked, script, usage)

    def _event(self, asked: dict[str, Any], script: Script, fields: dict[str, Any]) -> bytes:
        return b"data: " + orjson.dumps({**head(asked, self.chunk_kind), **fields}) + b"\n\n"

    def opening(self, asked: dict[str, Any], script: Script, index: int) -> dict[str, Any]:
        """Give the first chunk of a choice."""
        raise NotImplementedError

    def piece(
        self, asked: dict[str, Any], script: Script, index: int, token: ScriptedToken, *, is_last: bool
    ) -> dict[str, Any]:
        """Give the choice of one token's chunk."""
        raise NotImplementedError

    def whole(self, asked: dict[str, Any], script: Script) -> dict[str, Any]:
        """Give the answer that is not streamed."""
        raise NotImplementedError


def head(asked: dict[str, Any], kind: str) -> dict[str, Any]:
    """Give what begins every object."""
    return {"id": "chatcmpl-scripted", "object": kind, "created": 1_700_000_000, "model": asked.get("model")}


def usage_of(script: Script) -> dict[str, int]:
    """Count as the engine does."""
    completion = sum(len(tokens) for tokens in script.choices)
    if script.num_reported is not None:
        completion = script.num_reported
    prompt = len(script.prompt_ids)
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


class _ChatForm(_Form):
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, asked: dict[str, Any], script: Script, index: int) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        prompt = list(script.prompt_ids) if asked.get("return_token_ids") and script.has_ids else None
        return {"choices": [choice], "prompt_token_ids": prompt}

    def piece(
        self, asked: dict[str, Any], script: Script, index: int, token: ScriptedToken, *, is_last: bool
    ) -> dict[str, Any]:
        delta: dict[str, Any] = {"content": token.text} if token.text else {}
        if token.tool_call is not None:
            delta["tool_calls"] = [token.tool_call]
        if token.reasoning is not None:
            delta["reasoning"] = token.reasoning
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _chat_logprobs([token]) if asked.get("logprobs") else None,
            "finish_reason": script.finish_reason if is_last else None,
            "token_ids": [token.token_id] if asked.get("return_token_ids") and script.has_ids else None,
        }
        return {**choice, "stop_reason": script.stop_reason} if is_last else choice

    def whole(self, asked: dict[str, Any], script: Script) -> dict[str, Any]:
        choices = [self._choice(asked, script, n, tokens) for n, tokens in enumerate(script.choices)]
        has_ids = asked.get("return_token_ids") and script.has_ids
        return {
            **head(asked, self.kind),
            "choices": choices,
            "usage": usage_of(script),
            "prompt_token_ids": list(script.prompt_ids) if has_ids else None,
        }

    def _choice(
        self, asked: dict[str, Any], script: Script, index: int, tokens: Sequence[ScriptedToken]
    ) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(token.text for token in tokens)}
        calls = joined_calls(tokens)
        if calls:
            message["tool_calls"] = calls
        reasoning = "".join(token.reasoning or "" for token in tokens)
        if reasoning:
            message["reasoning"] = reasoning
        has_ids = asked.get("return_token_ids") and script.has_ids
        return {
            "index": index,
            "message": message,
            "logprobs": _chat_logprobs(tokens) if asked.get("logprobs") else None,
            "finish_reason": script.finish_reason,
            "stop_reason": script.stop_reason,
            "token_ids": [token.token_id for token in tokens] if has_ids else None,
        }


def joined_calls(tokens: Sequence[ScriptedToken]) -> list[dict[str, Any]]:
    """Join the pieces of tool calls, as the engine does when nothing is streamed."""
    calls: dict[int, dict[str, Any]] = {}
    for piece in (token.tool_call for token in tokens if token.tool_call is not None):
        function = piece.get("function") or {}
        call = calls.setdefault(
            piece["index"],
            {
                "id": piece.get("id"),
                "type": "function",
                "function": {"name": function.get("name"), "arguments": ""},
            },
        )
        call["function"]["arguments"] += function.get("arguments") or ""
    return [calls[index] for index in sorted(calls)]


def _chat_logprobs(tokens: Sequence[ScriptedToken]) -> dict[str, Any]:
    return {
        "content": [
            {"token": t.text, "logprob": t.logprob, "bytes": list(t.text.encode()), "top_logprobs": []}
            for t in tokens
        ]
    }


class _CompletionsForm(_Form):
    kind = "text_completion"
    chunk_kind = "text_completion"

    def opening(self, asked: dict[str, Any], script: Script, index: int) -> dict[str, Any]:
        prompt = list(script.prompt_ids) if asked.get("return_token_ids") and script.has_ids else None
        choice = {
            "index": index,
            "text": "",
            "logprobs": None,
            "finish_reason": None,
            "prompt_token_ids": prompt,
        }
        return {"choices": [choice]}

    def piece(
        self, asked: dict[str, Any], script: Script, index: int, token: ScriptedToken, *, is_last: bool
    ) -> dict[str, Any]:
        return {
            "index": index,
            "text": token.text,
            "logprobs": _plain_logprobs([token]) if asked.get("logprobs") is not None else None,
            "finish_reason": script.finish_reason if is_last else None,
            "stop_reason": script.stop_reason if is_last else None,
            "token_ids": [token.token_id] if asked.get("return_token_ids") and script.has_ids else None,
        }

    def whole(self, asked: dict[str, Any], script: Script) -> dict[str, Any]:
        has_ids = asked.get("return_token_ids") and script.has_ids
        choices = [
            {
                "index": index,
                "text": "".join(token.text for token in tokens),
                "logprobs": _plain_logprobs(tokens) if asked.get("logprobs") is not None else None,
                "finish_reason": script.finish_reason,
                "stop_reason": script.stop_reason,
                "token_ids": [token.token_id for token in tokens] if has_ids else None,
                "prompt_token_ids": list(script.prompt_ids) if has_ids else None,
            }
            for index, tokens in enumerate(script.choices)
        ]
        return {**head(asked, self.kind), "choices": choices, "usage": usage_of(script)}


def _plain_logprobs(tokens: Sequence[ScriptedToken]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{token.text: token.logprob} for token in tokens],
        "text_offset": [0 for _ in tokens],
    }


@contextmanager
def running_upstream(
    script: Script | None = None, *, weights: Weights | None = None
) -> Iterator[ScriptedUpstream]:
    """Run the engine in a thread of its own, with a loop of its own."""
    upstream = ScriptedUpstream(script=script or Script(), weights=weights)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted-upstream", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(upstream.start(), loop).result(10)
        yield upstream
    finally:
        asyncio.run_coroutine_threadsafe(upstream.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
