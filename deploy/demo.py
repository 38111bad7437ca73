"""Shell: `make demo`: every part of the loop that exists, shown at work on this machine.

Not the proof that a model learns, which takes longer: one batch goes round, and each call is accounted for.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI
from rich.console import Console
from rich.table import Table

from deploy.commands.serve import serve_in_background, serving_of
from deploy.configuration import read_configuration
from deploy.services import gateway_url

CONFIG = Path(__file__).with_name("demo.yaml")
QUESTIONS = (
    "What is the capital of France?",
    "What is 7 plus 5?",
    "Which planet is the largest?",
    "Who wrote Hamlet?",
    "What colour is the sky?",
    "How many days has a week?",
    "What do bees make?",
    "What is the opposite of hot?",
)
HEADERS = {"x-reef-scenario": "demo"}
"""The state folder may know other scenarios too."""
BRIEF_TOKENS = 12
LONG_TOKENS = 48
SETTLED_S_MAX = 420.0
"""A batch of this size takes a minute or two on two cores."""
ANSWER_S_MAX = 120.0
POLL_S = 1.0

console = Console(highlight=False)


def main() -> None:
    """Start all, ask, report, and watch what becomes of it."""
    settings = read_configuration(CONFIG, ()).settings
    console.rule("1  start: Kafka, lakeFS, vLLM, and our services")
    serve_in_background(serving_of(settings, CONFIG, ()))
    url = gateway_url(settings)
    with httpx.Client(base_url=url, headers=HEADERS, timeout=ANSWER_S_MAX) as http:
        console.rule("2  ask, through the openai client")
        calls = [ask(url, question) for question in QUESTIONS]
        console.rule("3  report how good each answer was: brief is good")
        for call in calls:
            report(http, call)
        console.rule("4  what becomes of the calls")
        fates = watch(http, [call["receipt"] for call in calls])
        console.rule("5  the chain of releases")
        releases = http.get("/reef/scenarios/demo/releases").raise_for_status().json()["releases"]
        show_releases(releases)
    console.print("everything still runs: `reef stack down` stops it, `reef topics` shows the log")
    states = Counter(fate["state"] for fate in fates)
    summary = {
        "requests": len(calls),
        "failed_requests": 0,
        "releases": len(releases),
        **{state: states[state] for state in ("trained", "dropped", "pending")},
    }
    console.print(json.dumps(summary), soft_wrap=True)


def ask(url: str, question: str) -> dict[str, Any]:
    """Ask one question and show the answer as it streams in."""
    client = OpenAI(base_url=f"{url}/v1", api_key="none", default_headers=HEADERS, timeout=ANSWER_S_MAX)
    messages: Any = [
        {"role": "system", "content": "Answer in English."},
        {"role": "user", "content": question},
    ]
    console.print(f"[bold]{question}[/bold]")
    with client.chat.completions.with_streaming_response.create(
        model="demo", messages=messages, max_tokens=LONG_TOKENS, temperature=1.0, stream=True
    ) as response:
        receipt = response.headers["x-reef-agent-record-id"]
        release_id = response.headers["x-reef-release-id"]
        num_chunks = 0
        for line in response.iter_lines():
            num_chunks += show_piece(line)
    console.print(f"\n  receipt {receipt}, release {release_id[:12]}, {num_chunks} pieces", style="dim")
    return {"receipt": receipt, "num_tokens": num_chunks}


def show_piece(line: str) -> int:
    """Print the text of one server-sent event; count it if it has any."""
    if not line.startswith("data: {"):
        return 0
    choices = json.loads(line[6:]).get("choices") or [{}]
    text = choices[0].get("delta", {}).get("content") or ""
    console.out(text, end="", highlight=False)
    return int(bool(text))


def score_of(num_tokens: int) -> float:
    """Score brevity: 1 up to 12 tokens, falling to 0 at 48."""
    return min(1.0, max(0.0, (LONG_TOKENS - num_tokens) / (LONG_TOKENS - BRIEF_TOKENS)))


def report(http: httpx.Client, call: Mapping[str, Any]) -> None:
    """Say how good an answer was."""
    score = score_of(call["num_tokens"])
    body = {"references": [call["receipt"]], "score": score}
    answer = http.post("/reef/report", json=body).raise_for_status().json()
    console.print(f"  score {score:.2f} for {call['receipt'][:20]}…: kept as {answer['agent_record_id']}")


def watch(http: httpx.Client, receipts: Sequence[str]) -> list[dict[str, Any]]:
    """Show the state of every call until none is pending, or for as long as a batch may take."""
    deadline_s = time.monotonic() + SETTLED_S_MAX
    with console.status("sessions are joined, a batch is sealed, the trainer works …"):
        fates = states_of(http, receipts)
        while any(fate["state"] == "pending" for fate in fates) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
            fates = states_of(http, receipts)
    table = Table(box=None, pad_edge=False)
    for title in ("receipt", "state", "reason", "batch", "release"):
        table.add_column(title)
    for fate in fates:
        cells = (fate.get(key) or "-" for key in ("reason", "batch_id", "release_id"))
        table.add_row(fate["agent_record_id"][:20] + "…", fate["state"], *(cell[:13] for cell in cells))
    console.print(table)
    return fates


def states_of(http: httpx.Client, receipts: Sequence[str]) -> list[dict[str, Any]]:
    """Ask what became of each call."""
    return [http.get(f"/reef/records/{receipt}").raise_for_status().json() for receipt in receipts]


def show_releases(releases: Sequence[Mapping[str, Any]]) -> None:
    """Show the chain, newest first."""
    table = Table(box=None, pad_edge=False)
    for title in ("seq", "release", "operation", "content", "current"):
        table.add_column(title)
    for row in releases:
        ids = (str(row["release_id"])[:12], row["operation"], str(row["content_sha256"])[:12])
        table.add_row(str(row["release_seq"]), *ids, "yes" if row.get("current") else "")
    console.print(table)


if __name__ == "__main__":
    main()
