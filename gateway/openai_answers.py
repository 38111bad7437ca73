"""Pure: OpenAI answers as the client asked for them: what only the gateway asked for is taken out."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.capture import Capture
from gateway.dialect import Ask
from gateway.errors import Problem, openai_error
from schemas.ids import Receipt

ENGINE_ONLY = frozenset({"logprobs", "token_ids"})
_DONE = b"data: [DONE]\n\n"


def wanted(body: Mapping[str, Any], *, logprobs: bool) -> frozenset[str]:
    """Read which of the captured fields the client asked for itself."""
    wants = set()
    if logprobs:
        wants.add("logprobs")
    if body.get("return_token_ids"):
        wants.add("token_ids")
    options = body.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        wants.add("usage")
    return frozenset(wants)


def with_usage(body: Mapping[str, Any]) -> dict[str, Any]:
    """Give the stream options that make the engine count."""
    options = body.get("stream_options")
    return {**(options if isinstance(options, Mapping) else {}), "include_usage": True}


def as_asked(ask: Ask, answer: dict[str, Any], raw: bytes, model: str) -> bytes:
    """Give an answer, or a chunk, as its JSON; unchanged bytes when nothing needs to go."""
    if ask.wants >= ENGINE_ONLY and answer.get("model") == model:
        return raw
    answer["model"] = model
    _strip(answer, ask.wants)
    return orjson.dumps(answer)


def _strip(answer: dict[str, Any], wants: frozenset[str]) -> None:
    has_logprobs, has_ids = "logprobs" in wants, "token_ids" in wants
    if not has_ids:
        answer.pop("prompt_token_ids", None)
    for choice in answer["choices"]:
        if not has_logprobs:
            choice["logprobs"] = None
        if not has_ids:
            choice.pop("token_ids", None)
            choice.pop("prompt_token_ids", None)


class OpenAiStream:
    """A stream in OpenAI's form, whether of chats or of completions."""

    __slots__ = ("_ask", "_model", "_object")

    def __init__(self, ask: Ask, model: str, kind: str) -> None:
        """Begin a stream of objects of this kind."""
        self._ask = ask
        self._model = model
        self._object = kind

    def chunk(self, chunk: dict[str, Any], payload: bytes) -> bytes:
        """Pass a chunk on; the count goes only to those who asked."""
        if not chunk["choices"] and "usage" in chunk and "usage" not in self._ask.wants:
            return b""
        return b"data: " + as_asked(self._ask, chunk, payload, self._model) + b"\n\n"

    def ending(self, capture: Capture, receipt: Receipt | None) -> bytes:
        """Name the receipt in a chunk without choices, then end."""
        if receipt is None:
            return _DONE
        chunk = {
            "id": capture.id,
            "object": self._object,
            "created": capture.created,
            "model": self._model,
            "choices": [],
            "reef": {"agent_record_id": receipt},
        }
        return b"data: " + orjson.dumps(chunk) + b"\n\n" + _DONE

    def broken(self, problem: Problem) -> bytes:
        """Say what broke; `[DONE]` never comes."""
        return b"data: " + orjson.dumps(openai_error(problem)) + b"\n\n"


def usage_of(capture: Capture) -> dict[str, Any]:
    """Give the engine's count, or what can be counted of an answer that broke off."""
    if capture.usage is not None:
        return capture.usage
    prompt, completion = len(capture.prompt_token_ids or ()), capture.num_completion_tokens()
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
