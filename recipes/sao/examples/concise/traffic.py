"""Shell: sixteen users who prefer brief answers: each asks, reads, scores what it got, and asks again.

Nothing here knows the system from inside: the `openai` client asks, one POST reports. It is what an
application of yours would do.

python -m recipes.sao.examples.concise.traffic --url http://127.0.0.1:8900
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from openai import AsyncOpenAI, OpenAIError
from rich.console import Console

SCENARIO = "concise"
NUM_USERS = 16
TOKENS_MAX = 48
"""Asked of the engine at most; an answer that long is worth nothing."""
BRIEF_TOKENS = 12
"""An answer up to here is worth 1."""
READING_S = (7.0, 21.0)
"""Between an answer and the next question. Were they much quicker than training, batches would be the answers
that came first, which are the brief ones, and the others too old by the next batch: little to learn from."""
DEADLINE_S = 120.0
"""Of one answer, and of one report."""

CAPITALS = "France Japan Italy Spain Egypt Canada Peru India Kenya Norway Greece Brazil".split()
QUESTIONS = (
    *(f"What is the capital of {country}?" for country in CAPITALS),
    *(f"What is {a} plus {b}?" for a, b in ((2, 3), (7, 5), (4, 9), (8, 6))),
    "Which planet is the largest?",
    "Who wrote Hamlet?",
    "What colour is the sky?",
    "How many days has a week?",
    "What do bees make?",
    "What is the opposite of hot?",
    "Name a river in Europe.",
    "What is the symbol of water?",
    "How many legs has a spider?",
    "Which metal is liquid at room temperature?",
    "Give me a synonym of happy.",
    "What language do Brazilians speak?",
    "What is ice made of?",
    "Name an instrument with keys.",
    "Which animal barks?",
    "What do cows eat?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer and what its user thought of it."""

    receipt: str
    """The call's name."""
    release_id: str
    """The release that began the answer."""
    num_tokens: int
    """As the engine counted."""
    score: float
    """As reported."""
    first_token_us: int
    """When the first piece came; microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A request that a user did not get an answer to."""

    detail: str
    """What the client said."""


Heard = Callable[[Answered | Failed], None]
"""Told after each question."""


def score_of(num_tokens: int, finish_reason: str | None) -> float:
    """Score brevity: 1 up to 12 tokens, falling to 0 at 48; 0 for an answer that was cut off."""
    if finish_reason != "stop":
        return 0.0
    return min(1.0, max(0.0, (TOKENS_MAX - num_tokens) / (TOKENS_MAX - BRIEF_TOKENS)))


def asked() -> Iterator[str]:
    """Give the questions in no order, for ever: in theirs each batch would hold other ones than the next."""
    while True:
        yield from random.sample(QUESTIONS, len(QUESTIONS))


async def play(url: str, heard: Heard, *, num_users: int = NUM_USERS) -> None:
    """Let users ask until cancelled."""
    headers = {"x-reef-scenario": SCENARIO}
    questions = asked()
    async with (
        AsyncOpenAI(
            base_url=f"{url}/v1", api_key="none", default_headers=headers, timeout=DEADLINE_S, max_retries=0
        ) as client,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=DEADLINE_S) as http,
        asyncio.TaskGroup() as group,
    ):
        for number in range(num_users):
            rest_s = READING_S[0] * number / num_users  # they do not all begin at once
            group.create_task(_use(client, http, questions, heard, rest_s))


async def _use(
    client: AsyncOpenAI,
    http: httpx.AsyncClient,
    questions: Iterator[str],
    heard: Heard,
    rest_s: float,
) -> None:
    await asyncio.sleep(rest_s)
    while True:
        try:
            heard(await _ask_and_report(client, http, next(questions)))
        except (OpenAIError, httpx.HTTPError) as error:
            heard(Failed(detail=f"{type(error).__name__}: {error}"))
        await asyncio.sleep(random.uniform(*READING_S))


async def _ask_and_report(client: AsyncOpenAI, http: httpx.AsyncClient, question: str) -> Answered:
    messages: Any = [{"role": "user", "content": question}]
    raw = await client.chat.completions.with_raw_response.create(
        model=SCENARIO,
        messages=messages,
        max_tokens=TOKENS_MAX,
        temperature=1.0,
        stream=True,
        stream_options={"include_usage": True},
    )
    first_token_us, finish_reason, num_tokens = 0, None, 0
    async for chunk in raw.parse():
        first_token_us = first_token_us or time.time_ns() // 1000
        if chunk.choices:
            finish_reason = chunk.choices[0].finish_reason or finish_reason
        if chunk.usage is not None:
            num_tokens = chunk.usage.completion_tokens
    receipt, score = raw.headers["x-reef-agent-record-id"], score_of(num_tokens, finish_reason)
    report = {"references": [receipt], "score": score}
    (await http.post("/reef/report", json=report)).raise_for_status()
    return Answered(
        receipt=receipt,
        release_id=raw.headers["x-reef-release-id"],
        num_tokens=num_tokens,
        score=score,
        first_token_us=first_token_us,
    )


class _Tally:
    """Shows the mean score of the latest answers."""

    def __init__(self, console: Console) -> None:
        self._console, self._scores = console, list[float]()

    def __call__(self, one: Answered | Failed) -> None:
        if isinstance(one, Failed):
            self._console.print(f"failed: {one.detail}", style="red")
            return
        self._scores.append(one.score)
        if len(self._scores) % NUM_USERS == 0:
            mean = sum(self._scores[-NUM_USERS:]) / NUM_USERS
            self._console.print(
                f"{len(self._scores):5} answers, mean score of the last {NUM_USERS}: {mean:.2f}, "
                f"release {one.release_id[:12]}"
            )


def main(words: Sequence[str] | None = None) -> None:
    """Ask until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8900", help="the gateway's address")
    parser.add_argument("--users", type=int, default=NUM_USERS, help="how many ask at a time")
    given = parser.parse_args(words)
    try:
        asyncio.run(play(given.url, _Tally(Console(highlight=False)), num_users=given.users))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
