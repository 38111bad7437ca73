"""Pure: OpenAI completions of a plain prompt, which the engine speaks itself."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.capture import Capture
from gateway.chat import text_of
from gateway.dialect import Ask, wants_stream
from gateway.openai_answers import OpenAiStream, as_asked, usage_of, wanted, with_usage
from gateway.sampling import sampling_of, written_out
from schemas.events import Api, CaptureFault, Sampling

PATH = "/v1/completions"


class Completions:
    """The dialect of /v1/completions."""

    api = Api.COMPLETIONS

    def ask(self, body: dict[str, Any], defaults: Sampling) -> Ask:
        """Understand a completion. Raises RejectedError."""
        logprobs = body.get("logprobs")
        is_stream = wants_stream(body)
        upstream = {
            **body,
            **written_out(body, defaults),
            "logprobs": 0 if logprobs is None else logprobs,
            "return_token_ids": True,
        }
        if is_stream:
            upstream["stream_options"] = with_usage(body)
        return Ask(
            upstream=upstream,
            path=PATH,
            sampling=sampling_of(body, defaults),
            is_stream=is_stream,
            system="",
            user=text_of(body.get("prompt")),
            faults=_faults(body),
            wants=wanted(body, logprobs=logprobs is not None and logprobs is not False),
            body=body,
        )

    def answer(self, ask: Ask, answer: dict[str, Any], raw: bytes, model: str) -> bytes:
        """Give the engine's answer, without what only we asked for."""
        return as_asked(ask, answer, raw, model)

    def translator(self, ask: Ask, model: str) -> OpenAiStream:
        """Begin a stream."""
        return OpenAiStream(ask, model, "text_completion")

    def whole(self, ask: Ask, capture: Capture, model: str) -> bytes:
        """Join the chunks into one completion."""
        answer = {
            "id": capture.id,
            "object": "text_completion",
            "created": capture.created,
            "model": model,
            "choices": [
                {
                    "index": index,
                    "text": "".join(choice.content),
                    "finish_reason": choice.finish_reason,
                    "stop_reason": choice.stop_reason,
                }
                for index, choice in capture.ordered()
            ],
            "usage": usage_of(capture),
        }
        return orjson.dumps(answer)


def _faults(body: Mapping[str, Any]) -> tuple[CaptureFault, ...]:
    """Name what keeps ids from being the whole truth: an echoed or embedded prompt, or several of them."""
    prompt = body.get("prompt")
    has_several = isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)
    if has_several or body.get("echo") or body.get("prompt_embeds") or body.get("use_beam_search"):
        return (CaptureFault.NOT_TOKEN_EXACT,)
    return ()
