"""The task "answer briefly": easy questions, a reward for short answers, and sampling by transformers."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel

from schemas.events import ExperienceAssembled
from schemas.ids import ExperienceId, derived_id
from tests.builders import an_experience_assembled, pack_logprobs, pack_mask, pack_temperatures, pack_tokens

CAPITALS = "France Japan Italy Spain Egypt Canada Peru India Kenya Norway Greece Brazil".split()
SUMS = ((2, 3), (7, 5), (4, 9), (8, 6))
QUESTIONS = (
    *(f"What is the capital of {country}?" for country in CAPITALS),
    *(f"What is {a}+{b}?" for a, b in SUMS),
    "Which fruit is yellow and curved?",
    "Who wrote Romeo and Juliet?",
    "What color is grass?",
    "How many hours are in a day?",
    "What do hens lay?",
    "What is the opposite of cold?",
    "Name a river in Africa.",
    "What is another word for H2O?",
    "How many legs does a dog have?",
    "Which planet do we live on?",
    "Give me a synonym of quick.",
    "What language is spoken in Mexico?",
    "What is snow made of?",
    "Name a musical instrument with strings.",
    "Which animal says meow?",
    "What do pandas eat?",
)
TOKENS_MAX = 48
BRIEF_TOKENS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One sampled answer."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    reward: float


def reward_of(token_ids: Sequence[int], end_id: int) -> float:
    """1 for an answer that ends within 12 tokens, falling to 0 at 48; 0 for one that does not end."""
    if end_id not in token_ids:
        return 0.0
    num = list(token_ids).index(end_id)
    return 1.0 if num <= BRIEF_TOKENS else max(0.0, (TOKENS_MAX - num) / TOKENS_MAX)


def tokenizer_of(folder: Path) -> Any:
    """Load the tokenizer, filling up on the left for sampling."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def sample(
    model: PreTrainedModel, tokenizer: Any, questions: Sequence[str], generator_seed: int
) -> list[Answer]:
    """Sample an answer to each question at temperature 1, with the log-probabilities of what was sampled."""
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        for question in questions
    ]
    prompts = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_seed)
        generate: Any = model.generate
        made = generate(
            **prompts,
            max_new_tokens=TOKENS_MAX,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            pad_token_id=tokenizer.eos_token_id,
            output_logits=True,
            return_dict_in_generate=True,
        )
    width = prompts["input_ids"].shape[1]
    logprobs = torch.stack(made.logits, dim=1).log_softmax(-1)
    chosen = made.sequences[:, width:]
    picked = logprobs.gather(-1, chosen[..., None])[..., 0]
    return [
        _answer(
            prompts["input_ids"][row], prompts["attention_mask"][row], chosen[row], picked[row], tokenizer
        )
        for row in range(len(questions))
    ]


def _answer(
    prompt: torch.Tensor, filled: torch.Tensor, chosen: torch.Tensor, picked: torch.Tensor, tokenizer: Any
) -> Answer:
    end_id = int(tokenizer.eos_token_id)
    ids = chosen.tolist()
    num = ids.index(end_id) + 1 if end_id in ids else len(ids)
    return Answer(
        prompt_ids=tuple(prompt[filled.bool()].tolist()),
        token_ids=tuple(ids[:num]),
        logprobs=tuple(picked[:num].tolist()),
        reward=reward_of(ids[:num], end_id),
    )


def experience_of(answer: Answer, *names: str) -> ExperienceAssembled:
    """Turn an answer into what the session fold would have assembled."""
    num_prompt, num = len(answer.prompt_ids), len(answer.token_ids)
    return an_experience_assembled(
        experience_id=ExperienceId(derived_id("learning", *names)),
        token_ids=pack_tokens(answer.prompt_ids + answer.token_ids),
        loss_mask=pack_mask([0] * num_prompt + [1] * num),
        logprobs=pack_logprobs((0.0,) * num_prompt + answer.logprobs),
        temperatures=pack_temperatures([1.0] * (num_prompt + num)),
        num_prompt_tokens=num_prompt,
        reward=answer.reward,
    )


def questions_of(seed: int, step: int, num: int) -> list[str]:
    """Choose the questions of a batch."""
    return random.Random(1_000 * seed + step).sample(QUESTIONS, num)
