"""Pure: what the fields of Anthropic's Messages must be, passed on, translated or left."""

from collections.abc import Mapping

from gateway.fields import (
    FLAG,
    INTEGER,
    LIST,
    OBJECT,
    OBJECTS,
    POSITIVE,
    SOME_OBJECTS,
    TEXT,
    TEXTS,
    Kinds,
    an_object,
    either,
    one_of,
    required,
)

ELSEWHERE = ("mcp_servers", "container", "thread")
"""Whoever sends these counts on a server that acts or remembers: an answer without would be another one."""

TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_FORM = an_object(type=required(one_of("json_schema")), schema=required(OBJECT))
FIELDS: Kinds = {
    "model": TEXT,
    "messages": required(SOME_OBJECTS),
    "system": either(TEXT, LIST),
    "stop_sequences": TEXTS,
    "thinking": an_object(
        type=required(one_of("enabled", "disabled", "adaptive", "between_tools")),
        budget_tokens=INTEGER,
        display=TEXT,
    ),
    "tools": OBJECTS,
    "tool_choice": an_object(
        type=required(one_of(*TOOL_CHOICES, "tool")), name=TEXT, disable_parallel_tool_use=FLAG
    ),
    "output_config": an_object(format=_FORM, effort=TEXT),
    "output_format": _FORM,
    "metadata": OBJECT,
    "service_tier": TEXT,
    "cache_control": OBJECT,
    "context_management": OBJECT,
    "mcp_servers": LIST,
    "container": either(TEXT, OBJECT),
    "thread": OBJECT,
}
"""Of a question, whether it is to be answered or counted. Sampling's numbers: gateway/sampling.py."""
ASKED: Kinds = {"max_tokens": required(POSITIVE)}
MESSAGE: Kinds = {
    "role": required(one_of("user", "assistant", "system")),
    "content": required(either(TEXT, OBJECTS)),
}
BLOCK: Kinds = {"type": required(TEXT)}
BLOCKS: Mapping[str, Kinds] = {
    "text": {"text": required(TEXT)},
    "image": {"source": required(an_object(type=required(TEXT)))},
    "thinking": {"thinking": TEXT},
    "tool_use": {"id": required(TEXT), "name": required(TEXT), "input": OBJECT},
    "tool_result": {"tool_use_id": required(TEXT), "content": either(TEXT, LIST), "is_error": FLAG},
}
SOURCES: Mapping[str, Kinds] = {
    "url": {"url": required(TEXT)},
    "base64": {"media_type": required(TEXT), "data": required(TEXT)},
}
TOOL: Kinds = {"name": required(TEXT), "description": TEXT, "input_schema": OBJECT, "strict": FLAG}
CHOSEN: Kinds = {"name": required(TEXT)}
