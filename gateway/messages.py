"""Pure: Anthropic Messages asked of the engine's chat route, so that they are captured token-exactly too.

Only the question is translated here; gateway/messages_answer.py translates back.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from gateway.capture import Capture
from gateway.chat import PATH, chat_faults, first_words
from gateway.dialect import Ask, refuse_given, wants_stream, with_tools
from gateway.errors import FieldError
from gateway.fields import NO_KINDS, check_fields
from gateway.messages_answer import MessagesStream, message_of
from gateway.messages_fields import (
    ASKED,
    BLOCK,
    BLOCKS,
    CHOSEN,
    ELSEWHERE,
    FIELDS,
    MESSAGE,
    SOURCES,
    TOOL,
    TOOL_CHOICES,
)
from gateway.sampling import sampling_of, written_out
from schemas.events import Api, Sampling


class Messages:
    """The dialect of /v1/messages."""

    api = Api.MESSAGES

    def ask(self, body: dict[str, Any], defaults: Sampling) -> Ask:
        """Understand a question. Raises RejectedError."""
        check_fields(body, ASKED)
        chat = chat_of(body)
        is_stream = wants_stream(body)
        upstream = {
            **chat,
            **written_out(body, defaults),
            "max_tokens": body["max_tokens"],
            "logprobs": True,
            "return_token_ids": True,
        }
        if is_stream:
            upstream |= {"stream": True, "stream_options": {"include_usage": True}}
        if body.get("stop_sequences"):
            upstream["stop"] = body["stop_sequences"]
        system, user = first_words(chat["messages"])
        return Ask(
            upstream=upstream,
            path=PATH,
            sampling=sampling_of(upstream, defaults),
            is_stream=is_stream,
            system=system,
            user=user,
            faults=chat_faults(chat, chat["messages"]),
            body=body,
        )

    def answer(self, ask: Ask, answer: dict[str, Any], raw: bytes, model: str) -> bytes:
        """Give the engine's answer as a message."""
        capture = Capture()
        capture.answer(answer)
        return self.whole(ask, capture, model)

    def translator(self, ask: Ask, model: str) -> MessagesStream:
        """Begin a stream."""
        return MessagesStream(ask, model)

    def whole(self, ask: Ask, capture: Capture, model: str) -> bytes:
        """Join the chunks into one message."""
        return orjson.dumps(message_of(ask, capture, model))


def chat_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Translate what is said, which tools there are, and the form of the answer. Raises FieldError."""
    check_fields(body, FIELDS)
    refuse_given(body, ELSEWHERE, "nothing runs or is kept on the provider's side here, leave it out")
    messages = [*_system(body.get("system"))]
    for number, message in enumerate(body["messages"]):
        messages += _message(message, f"messages.{number}")
    chat: dict[str, Any] = {"messages": messages}
    tools = [_tool(tool, f"tools.{number}") for number, tool in enumerate(body.get("tools") or ())]
    chat |= with_tools(tools, _tool_choice(body.get("tool_choice")))
    if (thinking := body.get("thinking")) is not None:
        chat["chat_template_kwargs"] = {"enable_thinking": thinking["type"] != "disabled"}
    form = body.get("output_format") or (body.get("output_config") or {}).get("format")
    if form:
        schema = {"name": "answer", "schema": form["schema"]}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def _system(system: str | list[Any] | None) -> Iterator[dict[str, Any]]:
    if system:
        text = system if isinstance(system, str) else "\n".join(_text(block, "system") for block in system)
        yield {"role": "system", "content": text}


def _message(message: Mapping[str, Any], at: str) -> Iterator[dict[str, Any]]:
    check_fields(message, MESSAGE, at)
    content = message["content"]
    if isinstance(content, str):
        yield {"role": message["role"], "content": content}
        return
    for number, block in enumerate(content):
        check_fields(block, BLOCK, f"{at}.content.{number}")
        check_fields(block, BLOCKS.get(block["type"], NO_KINDS), f"{at}.content.{number}")
    if message["role"] == "assistant":
        yield _assistant(content, f"{at}.content")
    else:
        yield from _user(message["role"], content, f"{at}.content")


def _user(role: str, content: Iterable[Mapping[str, Any]], at: str) -> Iterator[dict[str, Any]]:
    """Give the results of tools first, each as a message of its own, then what the user says."""
    parts: list[dict[str, Any]] = []
    for number, block in enumerate(content):
        if block["type"] == "tool_result":
            yield {
                "role": "tool",
                "tool_call_id": block["tool_use_id"],
                "content": _result(block.get("content"), f"{at}.{number}.content"),
            }
        else:
            parts.append(_part(block, f"{at}.{number}"))
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": role, "content": parts[0]["text"]}
    elif parts:
        yield {"role": role, "content": parts}


def _assistant(content: Iterable[Mapping[str, Any]], at: str) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for number, block in enumerate(content):
        match block["type"]:
            case "text":
                texts.append(block["text"])
            case "thinking":
                thoughts.append(block.get("thinking") or "")
            case "tool_use":
                calls.append(_call(block))
            case "redacted_thinking":
                continue
            case other:
                raise _unknown_block(other, f"{at}.{number}")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = orjson.dumps(block.get("input") or {}).decode()
    return {
        "id": block["id"],
        "type": "function",
        "function": {"name": block["name"], "arguments": arguments},
    }


def _part(block: Mapping[str, Any], at: str) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": block["text"]}
        case "image":
            return {"type": "image_url", "image_url": {"url": _image_url(block["source"], at)}}
        case other:
            raise _unknown_block(other, at)


def _image_url(source: Mapping[str, Any], at: str) -> str:
    kind = source["type"]
    check_fields(source, SOURCES.get(kind, NO_KINDS), f"{at}.source")
    match kind:
        case "url":
            return str(source["url"])
        case "base64":
            return f"data:{source['media_type']};base64,{source['data']}"
        case _:
            raise FieldError(f"expected an image with a url or base64 source in {at}, got another", param=at)


def _result(content: str | list[Any] | None, at: str) -> str:
    if isinstance(content, list):
        return "\n".join(_text(block, at) for block in content)
    return content or ""


def _text(block: Any, at: str) -> str:
    text = block.get("text") if isinstance(block, Mapping) and block.get("type") == "text" else None
    if not isinstance(text, str):
        raise FieldError(f"expected a text block in {at}, got another: send text", param=at)
    return text


def _tool(tool: Mapping[str, Any], at: str) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        raise FieldError(
            f"expected {at} to be a tool of your own, got another: the engine has none", param=at
        )
    check_fields(tool, TOOL, at)
    function = {"name": tool["name"], "parameters": tool.get("input_schema") or {"type": "object"}}
    if tool.get("description"):
        function["description"] = tool["description"]
    if tool.get("strict"):
        function["strict"] = True
    return {"type": "function", "function": function}


def _tool_choice(choice: Mapping[str, Any] | None) -> dict[str, Any]:
    if choice is None:
        return {}
    translated: dict[str, Any] = {}
    if choice["type"] == "tool":
        check_fields(choice, CHOSEN, "tool_choice")
        translated["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    else:
        translated["tool_choice"] = TOOL_CHOICES[choice["type"]]
    if choice.get("disable_parallel_tool_use"):
        translated["parallel_tool_calls"] = False
    return translated


def _unknown_block(kind: Any, at: str) -> FieldError:
    return FieldError(
        f"expected text, image, thinking, tool_use or tool_result in {at}, got {str(kind)[:40]!r}: "
        "leave it out",
        param=at,
    )
