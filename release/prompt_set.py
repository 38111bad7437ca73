"""Shell: the evaluator `prompt_set`: held-out prompts, answered by candidate and incumbent, scored alike.

Runs in the child process of an evaluation. Greedy, a few dozen tokens a prompt; a small sample that catches a
broken candidate, not a benchmark. A scorer of one's own that raises refuses the candidate.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from transformers import AutoModelForCausalLM, AutoTokenizer

from release.complete_model import complete_model
from release.engine_answers import ask_engine
from release.evaluation import Content, Measured, Subject
from schemas.events import ArtifactKind, VerdictReason
from schemas.recipe import load_object

PROMPTS_MAX, TOKENS_MAX = 32, 48

Scorer = Callable[["Prompt", str], float]


class Prompt(BaseModel):
    """One question."""

    model_config = ConfigDict(frozen=True, extra="allow")

    prompt: str = Field(min_length=1, description="what the user says")
    system: str | None = Field(None, description="the system message")
    expected: str | None = Field(None, description="text that a good answer holds, whatever its case")


class PromptSetConfig(BaseModel):
    """`evaluation.config` of `prompt_set`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompts: tuple[Prompt, ...] = Field(min_length=1, max_length=PROMPTS_MAX)
    scorer: str | None = Field(None, description="package.module:function(prompt, answer) -> float")
    margin: float = Field(0.0, ge=0, description="how far below the incumbent's score a candidate may be")
    tokens_max: int = Field(TOKENS_MAX, ge=1, le=TOKENS_MAX, description="longest answer")
    threads: int = Field(1, ge=1, description="threads of the child process")


class PromptSet:
    """Scores answers to a held-out set."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read prompts and scorer; mistakes raise."""
        self._config = PromptSetConfig.model_validate(config)
        self._score: Scorer = load_object(self._config.scorer) if self._config.scorer else holds_expected

    def evaluate(self, subject: Subject) -> Measured:
        """Score candidate and incumbent; the incumbent once per content."""
        torch.set_num_threads(self._config.threads)
        scores = {"score": self._scored(subject.candidate, subject)}
        baseline = dict(subject.incumbent_scores or {"score": self._scored(subject.incumbent, subject)})
        is_worse = not scores["score"] >= baseline["score"] - self._config.margin
        reasons = (VerdictReason.WORSE_THAN_INCUMBENT,) if is_worse else ()
        return Measured(reasons=reasons, metrics=scores, baseline_metrics=baseline)

    def _scored(self, content: Content, subject: Subject) -> float:
        answers = answers_of(content, subject, self._config)
        scores = [self._score(*pair) for pair in zip(self._config.prompts, answers, strict=True)]
        return sum(scores) / len(scores)


def holds_expected(prompt: Prompt, answer: str) -> float:
    """Score 1 when the answer holds what is expected."""
    if prompt.expected is None:
        raise ValueError(
            "expected `expected` beside each prompt, or a `scorer`: add one to evaluation.config"
        )
    return float(prompt.expected.lower() in answer.lower())


def answers_of(content: Content, subject: Subject, config: PromptSetConfig) -> Sequence[str]:
    """Ask a content every prompt, greedily: an adapter on the engine if there is one, anything else here."""
    if subject.engine is not None and subject.candidate.kind is ArtifactKind.LORA:
        asked = [_messages(prompt) for prompt in config.prompts]
        return ask_engine(subject.engine, content, asked, tokens_max=config.tokens_max)
    with complete_model(content, subject.model_folder) as folder:
        dtype = torch.float32 if subject.device == "cpu" else "auto"  # many processors only emulate bf16
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        model = model.to(subject.device)
        if content.kind is ArtifactKind.LORA:
            model = _adapted(model, content.folder)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        with torch.inference_mode():
            return [_answer(model, tokenizer, prompt, config.tokens_max) for prompt in config.prompts]


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    system = [{"role": "system", "content": prompt.system}] if prompt.system is not None else []
    return [*system, {"role": "user", "content": prompt.prompt}]


def _adapted(model: Any, adapter: Path) -> Any:
    from peft import PeftModel  # noqa: PLC0415  # imported for adapters only: it takes seconds

    return PeftModel.from_pretrained(model, str(adapter))


def _answer(model: Any, tokenizer: Any, prompt: Prompt, tokens_max: int) -> str:
    asked = tokenizer.apply_chat_template(
        _messages(prompt), add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    given = model.generate(
        **asked, do_sample=False, temperature=None, top_p=None, top_k=None, max_new_tokens=tokens_max
    )
    return str(tokenizer.decode(given[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))
