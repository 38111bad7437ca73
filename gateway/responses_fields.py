"""Pure: what the fields of OpenAI's Responses must be, passed on, translated or left."""

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

LOGPROBS = "message.output_text.logprobs"
"""What `include` asks for when it asks for logprobs."""

FIELDS: Kinds = {
    "model": TEXT,
    "input": required(either(TEXT, SOME_OBJECTS)),
    "instructions": TEXT,
    "max_output_tokens": POSITIVE,
    "n": INTEGER,
    "top_logprobs": INTEGER,
    "include": TEXTS,
    "stop": either(TEXT, TEXTS),
    "chat_template_kwargs": OBJECT,
    "tools": OBJECTS,
    "tool_choice": either(TEXT, OBJECT),
    "parallel_tool_calls": FLAG,
    "max_tool_calls": INTEGER,
    "text": an_object(
        format=an_object(type=required(TEXT), name=TEXT, schema=OBJECT, description=TEXT, strict=FLAG),
        verbosity=TEXT,
    ),
    "reasoning": an_object(effort=TEXT, summary=TEXT, generate_summary=TEXT),
    "stream_options": OBJECT,
    "truncation": TEXT,
    "store": FLAG,
    "metadata": OBJECT,
    "user": TEXT,
    "safety_identifier": TEXT,
    "service_tier": TEXT,
    "prompt_cache_key": TEXT,
    "prompt_cache_retention": TEXT,
    "context_management": LIST,
    "previous_response_id": TEXT,
    "conversation": either(TEXT, OBJECT),
    "prompt": OBJECT,
    "background": FLAG,
}
"""Of a request. Sampling's numbers: gateway/sampling.py."""
ITEM: Kinds = {"type": TEXT}
ITEMS: Mapping[str, Kinds] = {
    "message": {
        "role": required(one_of("user", "assistant", "system", "developer")),
        "content": required(either(TEXT, OBJECTS)),
    },
    "function_call": {"call_id": required(TEXT), "name": required(TEXT), "arguments": TEXT},
    "function_call_output": {"call_id": required(TEXT), "output": required(either(TEXT, LIST))},
}
PART: Kinds = {"type": required(TEXT)}
PARTS: Mapping[str, Kinds] = {
    "input_text": {"text": required(TEXT)},
    "output_text": {"text": required(TEXT)},
    "text": {"text": required(TEXT)},
    "refusal": {"refusal": required(TEXT)},
    "input_image": {"image_url": required(TEXT), "detail": TEXT},
}
TOOL: Kinds = {"name": required(TEXT), "description": TEXT, "parameters": OBJECT, "strict": FLAG}
CHOSEN: Kinds = {"type": required(one_of("function")), "name": required(TEXT)}
