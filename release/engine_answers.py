"""Shell: an adapter answers on an engine that runs: loaded under a name of its own, asked directly, unloaded.

No gateway is asked, so nothing becomes experience. The engine's `--max-loras` must leave room for one more.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from release.evaluation import Content
from schemas.errors import UnavailableError
from schemas.events import ArtifactKind

CALL_S_MAX = 120.0
NAME_CHARS = 16
Message = Mapping[str, str]


def ask_engine(
    engine: str, content: Content, conversations: Sequence[Sequence[Message]], *, tokens_max: int
) -> list[str]:
    """Give the engine's greedy answers of an adapter, or of its base model. Raises UnavailableError."""
    with _served(engine, content) as model:
        return [_answer(engine, model, messages, tokens_max) for messages in conversations]


@contextmanager
def _served(engine: str, content: Content) -> Iterator[str]:
    if content.kind is not ArtifactKind.LORA:
        yield str(_call(engine, "/v1/models")["data"][0]["id"])
        return
    name = f"candidate--{content.content_sha256[:NAME_CHARS]}"
    _call(engine, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(content.folder)})
    try:
        yield name
    finally:
        _call(engine, "/v1/unload_lora_adapter", {"lora_name": name})


def _answer(engine: str, model: str, messages: Sequence[Message], tokens_max: int) -> str:
    asked = {"model": model, "messages": list(messages), "temperature": 0, "max_tokens": tokens_max}
    answer = _call(engine, "/v1/chat/completions", asked)
    return str(answer["choices"][0]["message"]["content"] or "")


def _call(engine: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(engine + path, data=data, headers={"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=CALL_S_MAX) as answer:
            text = answer.read()
    except HTTPError as error:
        detail = error.read(300).decode(errors="replace")
        raise _unavailable(path, f"status {error.code} {detail}") from error
    except (URLError, OSError) as error:
        raise _unavailable(path, str(error)) from error
    return json.loads(text) if text.startswith(b"{") else text.decode()


def _unavailable(path: str, got: str) -> UnavailableError:
    return UnavailableError(
        f"expected the engine to answer {path}, got {got}: see that it runs with --enable-lora and room for "
        "one adapter more",
        reason="engine_failed",
    )
