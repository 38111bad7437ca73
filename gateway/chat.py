"""Pure: OpenAI chat completions, which the engine speaks itself: almost nothing is translated.

Next: gateway/capture.py
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from gateway.capture import Capture, CapturedChoice
from gateway.dialect import Ask, wants_stream
from gateway.errors import FieldError
from gateway.openai_answers import OpenAiStream, as_asked, usage_of, wanted, with_usage
from gateway.sampling import sampling_of, written_out
from schemas.events import Api, CaptureFault, Sampling

PATH = "/v1/chat/completions"


class Chat:
    """The dialect of /v1/chat/completions."""

    api = Api.CHAT

    def ask(self, body: dict[str, Any], defaults: Sampling) -> Ask:
        """Understand a chat. Raises RejectedError."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
            raise FieldError("expected messages to be a list of objects: send one", param="messages")
        wants_logprobs = bool(body.get("logprobs"))
        if body.get("top_logprobs") and not wants_logprobs:
            raise FieldError("expected logprobs: true beside top_logprobs, got none", param="top_logprobs")
        is_stream = wants_stream(body)
        upstream = {**body, **written_out(body, defaults), "logprobs": True, "return_token_ids": True}
        if is_stream:
            upstream["stream_options"] = with_usage(body)
        system, user = first_words(messages)
        return Ask(
            upstream=upstream,
            path=PATH,
            sampling=sampling_of(body, defaults),
            is_stream=is_stream,
            system=system,
            user=user,
            faults=chat_faults(body, messages),
            wants=wanted(body, logprobs=wants_logprobs),
            body=body,
        )

    def answer(self, ask: Ask, answer: dict[str, Any], raw: bytes, model: str) -> bytes:
        """Give the engine's answer, without what only we asked for."""
        return as_asked(ask, answer, raw, model)

    def translator(self, ask: Ask, model: str) -> OpenAiStream:
        """Begin a stream."""
        return OpenAiStream(ask, model, "chat.completion.chunk")

    def whole(self, ask: Ask, capture: Capture, model: str) -> bytes:
        """Join the chunks into one chat completion."""
        answer = {
            "id": capture.id,
            "object": "chat.completion",
            "created": capture.created,
            "model": model,
            "choices": [
                {
                    "index": index,
                    "message": message_of(choice),
                    "finish_reason": choice.finish_reason,
                    "stop_reason": choice.stop_reason,
                }
                for index, choice in capture.ordered()
            ],
            "usage": usage_of(capture),
        }
        return orjson.dumps(answer)


def message_of(choice: CapturedChoice) -> dict[str, Any]:
    """Join the pieces of one answer into a message."""
    calls = [call for _, call in sorted(choice.tool_calls.items())]
    content = "".join(choice.content)
    message: dict[str, Any] = {"role": choice.role, "content": content if content or not calls else None}
    if choice.reasoning:
        message["reasoning"] = "".join(choice.reasoning)
    if choice.refusal:
        message["refusal"] = "".join(choice.refusal)
    if calls:
        message["tool_calls"] = calls
    return message


def first_words(messages: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Give the first system and the first user message, which all turns of a conversation share."""
    system = user = None
    for message in messages:
        role = message.get("role")
        if system is None and role in ("system", "developer"):
            system = text_of(message.get("content"))
        elif user is None and role == "user":
            user = text_of(message.get("content"))
    return system or "", user or ""


def text_of(content: Any) -> str:
    """Give a message's content as text, the same for equal content."""
    if isinstance(content, str):
        return content
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS).decode()


def chat_faults(body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> tuple[CaptureFault, ...]:
    """Name what keeps ids from being the whole truth: pictures, sound, or a search instead of a sample."""
    if body.get("use_beam_search") or any(_has_media(message.get("content")) for message in messages):
        return (CaptureFault.NOT_TOKEN_EXACT,)
    return ()


def _has_media(content: Any) -> bool:
    if not isinstance(content, list):
        return False
    return any(isinstance(part, Mapping) and part.get("type") not in ("text", "refusal") for part in content)
