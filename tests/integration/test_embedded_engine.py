"""The embedded engine answers with the model that the project prepares."""

from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from openai import OpenAI

from deploy.embedded.model import convert_model
from tests.conftest import EngineEndpoint

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def _client(engine: EngineEndpoint) -> OpenAI:
    return OpenAI(base_url=f"{engine.url}/v1", api_key="none", timeout=120, max_retries=0)


def test_the_small_model_knows_the_capital_of_france(smollm2_engine: EngineEndpoint) -> None:
    answer = _client(smollm2_engine).chat.completions.create(
        model=smollm2_engine.model,
        messages=[
            {"role": "system", "content": "Answer in English."},
            {"role": "user", "content": "What is the capital of France?"},
        ],
        temperature=0,
    )
    assert answer.choices[0].message.content == "The capital of France is Paris."


def test_logprobs_are_those_of_the_distribution_that_was_sampled(tiny_engine: EngineEndpoint) -> None:
    """With raw logprobs the temperature would make no difference."""
    best = []
    for temperature in (0.3, 1.0):
        answer = _client(tiny_engine).chat.completions.create(
            model=tiny_engine.model,
            messages=[{"role": "user", "content": "Hello"}],
            temperature=temperature,
            max_tokens=1,
            logprobs=True,
            top_logprobs=1,
        )
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        best.append(logprobs.content[0].top_logprobs[0].logprob)
    assert best[0] > best[1] + 0.5


def test_who_waits_for_a_step_leaves_the_processor_to_who_computes_it(smollm2_engine: EngineEndpoint) -> None:
    """vLLM's own queue turns in a loop meanwhile, which takes as much time as the computing does."""
    children = psutil.Process(smollm2_engine.pid).children(recursive=True)
    core, worker = (_named(name, children) for name in ("EngineCore", "Worker"))
    before = [_seconds_used(one) for one in (core, worker)]
    _client(smollm2_engine).completions.create(
        model=smollm2_engine.model, prompt="Once", max_tokens=100, extra_body={"ignore_eos": True}
    )
    after = [_seconds_used(one) for one in (core, worker)]
    waited_s, computed_s = (now - then for now, then in zip(after, before, strict=True))
    assert waited_s < computed_s / 2


def _named(name: str, processes: Sequence[psutil.Process]) -> psutil.Process:
    return next(one for one in processes if name in " ".join(one.cmdline()))


def _seconds_used(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def test_the_tiny_model_has_the_same_bytes_each_time(tiny_engine: EngineEndpoint, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    convert_model("tiny", again)
    for name in ("model.safetensors", "tokenizer.json", "config.json", "chat_template.jinja"):
        assert (again / name).read_bytes() == (tiny_engine.model_dir / name).read_bytes(), name
