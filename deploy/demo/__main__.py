"""Shell: the demo from start to end: serve, play users, watch, compare old and new, roll back and forth.

python -m deploy.demo [--fresh] [--batches-max 25] [--section.key value …]
"""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from deploy.background import end_supervisor
from deploy.commands.serve import serve_in_background, serving_of
from deploy.configuration import read_configuration
from deploy.demo.picture import draw
from deploy.demo.screen import fate_line, timeline
from deploy.demo.showing import showing
from deploy.demo.story import Story
from deploy.demo.watching import watching
from deploy.services import gateway_url
from recipes.sao.examples.concise.traffic import SCENARIO, TOKENS_MAX, Answered, Failed, play
from schemas.errors import ReefError, UnavailableError
from schemas.events import Operation
from schemas.ids import ScenarioName
from schemas.settings import Settings

CONFIG = Path(__file__).parents[2] / "recipes/sao/examples/concise/serve.yaml"
OUT = Path("demo")
QUESTION = "What colour is the sky?"
UNRECORDED = {"x-reef-scenario": SCENARIO, "x-reef-no-record": "true"}
"""Questions of ours are nobody's traffic."""
BATCHES_MAX = 25
RELEASES_MIN = 8
ANSWER_S_MAX = 120.0
SETTLED_S_MAX = 120.0
"""How long the last batch may take to be trained and released."""
SERVED_S_MAX = 60.0
CHUNK = "data: {"
"""How a piece of a streamed answer begins."""
REFRESH_S = 0.5
LOOK_S = 0.1
"""Between two looks whether a release that was published serves."""

console = Console(highlight=False)


@dataclass(slots=True, kw_only=True)
class Users:
    """What the users of the run saw."""

    story: Story
    """What the log says meanwhile."""
    asked: int = 0
    """Requests that were answered or failed."""
    failures: int = 0
    """Requests that failed."""

    def heard(self, one: Answered | Failed) -> None:
        """Count one exchange."""
        self.asked += 1
        if isinstance(one, Failed):
            self.failures += 1
            console.print(f"failed: {one.detail}", style="red")
        else:
            self.story.hear_first_token(one.release_id, one.first_token_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer to the one question that every release is asked."""

    text: str
    """What the model said."""
    release_id: str
    """The release that began it."""
    first_token_us: int
    """When the first piece came; microseconds UTC."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when no request failed."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget the last run, and begin with release 0")
    parser.add_argument("--batches-max", type=int, default=BATCHES_MAX, help="end after so many batches")
    parser.add_argument("--releases-min", type=int, default=RELEASES_MIN, help="go on until so many releases")
    given, overrides = parser.parse_known_args(words)
    settings = read_configuration(CONFIG, overrides).settings
    state_dir = settings.reef.state_dir.absolute()
    console.soft_wrap = not console.is_terminal  # a log's lines stay whole
    try:
        with termination_as_interruption():
            if given.fresh:
                end_supervisor(state_dir)
                shutil.rmtree(state_dir, ignore_errors=True)
            console.rule("1  start: Kafka, lakeFS, vLLM, and our services")
            serve_in_background(serving_of(settings, CONFIG, overrides))
            return asyncio.run(run(settings, given.batches_max, given.releases_min))
    except ReefError as error:
        console.print(f"reef: {error}", style="red", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("stopped; everything still runs: `reef stack down` ends it")
        return 130


@contextmanager
def termination_as_interruption() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C is taken, by asyncio too."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def run(settings: Settings, batches_max: int, releases_min: int) -> int:
    """Play, watch, compare."""
    story = Story(scenario=ScenarioName(SCENARIO))
    users = Users(story=story)
    async with (
        httpx.AsyncClient(base_url=gateway_url(settings), headers=UNRECORDED, timeout=ANSWER_S_MAX) as http,
        watching(settings, story),
    ):
        first = (await releases_of(http))[0]
        if first["release_seq"]:
            console.print(f"goes on from release r{first['release_seq']}; --fresh begins anew")
        before = await answer(http)
        console.rule("2  sixteen users ask, read, and score: brief is good")
        num_before = len(await releases_of(http))
        async with asking_each_release(http, users):
            await learn(settings, users, batches_max, releases_min, num_before=num_before)
        last = (await releases_of(http))[0]
        console.rule("3  the same question, before and after, and back again")
        await compare(http, first, last, before)
        await until(lambda: _has_all(users), SETTLED_S_MAX)
        published = [row for row in await releases_of(http) if row["release_seq"] > first["release_seq"]]
    return tell(users, published)


async def learn(
    settings: Settings, users: Users, batches_max: int, releases_min: int, *, num_before: int
) -> None:
    """Let users ask until the model has learned, then wait for what is under way."""
    story = users.story

    def is_over() -> bool:
        num_releases = num_before + len(story.releases)
        return len(story.sealed) >= batches_max or (story.has_learned and num_releases >= releases_min)

    playing = asyncio.create_task(play(gateway_url(settings), users.heard))
    try:
        with showing(console, story, QUESTION) as show:
            while not is_over():
                if playing.done():
                    playing.result()  # a bug of the traffic's is not waited for
                show(_note(users, settings))
                await asyncio.sleep(REFRESH_S)
            last, deadline_s = story.sealed[-1], time.monotonic() + SETTLED_S_MAX
            while story.awaits(last) and time.monotonic() < deadline_s:
                show("the last batch becomes a release …")
                await asyncio.sleep(REFRESH_S)
            show("learned" if story.has_learned else "not learned")
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


@asynccontextmanager
async def asking_each_release(http: httpx.AsyncClient, users: Users) -> AsyncIterator[None]:
    """Ask each release the one question as soon as it serves: what it answers shows what it has learned."""
    task = asyncio.create_task(_ask_each_release(http, users))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _ask_each_release(http: httpx.AsyncClient, users: Users) -> None:
    """Ask at the moment at which a release serves; its ModelSwapped comes a second later."""
    story, num_asked = users.story, 0
    while True:
        await asyncio.sleep(LOOK_S)
        if len(story.releases) == num_asked:
            continue
        newest = story.releases[-1].release_id
        try:
            if not await serves(http, newest):
                continue
            num_asked = len(story.releases)
            said = await answer(http)
        except httpx.HTTPError as error:
            users.heard(Failed(detail=f"{type(error).__name__}: {error}"))
            continue
        story.hear_first_token(said.release_id, said.first_token_us)
        story.hear_answer(said.release_id, said.text)


async def serves(http: httpx.AsyncClient, release_id: str) -> bool:
    """Whether new calls are answered by this release."""
    return any(row["release_id"] == release_id and row["serving"] for row in await releases_of(http))


def _note(users: Users, settings: Settings) -> str:
    state_dir = settings.reef.state_dir
    told = f"{users.asked} asked, {users.failures} failed"
    return f"{told} · logs: {state_dir / 'logs'} · Ctrl-C stops the demo only"


async def compare(http: httpx.AsyncClient, first: Any, last: Any, before: Reply) -> None:
    """Show what changed; roll back live, and forward again."""
    after = await answer(http)
    console.print(f"[bold]{QUESTION}[/bold]")
    console.print(f"  r{first['release_seq']}: {before.text!r}", markup=False)
    console.print(f"  r{last['release_seq']}: {after.text!r}", markup=False)
    if first["release_id"] == last["release_id"]:
        return
    back = await roll_back(http, first)
    again = await answer(http)
    console.print(f"  r{back['release_seq']} (back to r{first['release_seq']}): {again.text!r}", markup=False)
    forward = await roll_back(http, last)
    newest = await answer(http)
    console.print(
        f"  r{forward['release_seq']} (forward to r{last['release_seq']}): {newest.text!r}", markup=False
    )
    same = again.text == before.text and newest.text == after.text
    console.print("both are what they were" if same else "expected the same answers as before, got others")


async def roll_back(http: httpx.AsyncClient, release: Any) -> Any:
    """Bring a release's content back as a new release, and wait until it serves."""
    began_s = time.monotonic()
    body = {"release_id": release["release_id"]}
    published = await http.post(f"/reef/scenarios/{SCENARIO}/rollback", json=body)
    new = published.raise_for_status().json()

    await until(lambda: serves(http, new["release_id"]), SERVED_S_MAX)
    console.print(
        f"  … rolled to r{release['release_seq']} in {time.monotonic() - began_s:.1f} s", style="dim"
    )
    return new


async def until(holds: Callable[[], Awaitable[bool]], deadline_s: float) -> None:
    """Wait for something. Raises UnavailableError when it does not come."""
    try:
        async with asyncio.timeout(deadline_s):
            while not await holds():  # noqa: ASYNC110 - it holds over HTTP
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise UnavailableError(
            f"expected the system to come to rest within {deadline_s:g} s, got no end: see the logs",
            reason="deadline",
        ) from error


async def _has_all(users: Users) -> bool:
    return len(users.story.answered) >= users.asked - users.failures


async def answer(http: httpx.AsyncClient) -> Reply:
    """Ask the question, greedily."""
    body = {
        "model": SCENARIO,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": TOKENS_MAX,
        "temperature": 0,
        "stream": True,
    }
    text, first_token_us = "", 0
    async with http.stream("POST", "/v1/chat/completions", json=body) as answered:
        answered.raise_for_status()
        async for line in answered.aiter_lines():
            if not line.startswith(CHUNK):
                continue
            first_token_us = first_token_us or time.time_ns() // 1000
            for choice in json.loads(line.removeprefix("data: ")).get("choices", ()):
                text += choice["delta"].get("content") or ""
    release_id = answered.headers["x-reef-release-id"]
    return Reply(text=text, release_id=release_id, first_token_us=first_token_us)


async def releases_of(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Give the chain, newest first."""
    found = await http.get(f"/reef/scenarios/{SCENARIO}/releases")
    return list(found.raise_for_status().json()["releases"])


def tell(users: Users, published: Sequence[Any]) -> int:
    """Print the timeline and the sum, draw the picture, and end with one line of JSON.

    `published` are the releases of this run, newest first.
    """
    story = users.story
    picture = OUT / "learning-curve.png"
    draw(story, picture)
    console.rule("4  what it took")
    console.print(timeline(story.sealed))
    console.print(fate_line(story))
    num_rolled = sum(row["operation"] == Operation.ROLLBACK for row in published)
    console.print(
        f"{len(published)} releases published by this run, {num_rolled} of them by rolling back and forward"
    )
    console.print(
        f"picture: {picture}; everything still runs: `reef stack down` stops it, `reef status` shows it"
    )
    first, last = story.quarter_means()
    summary = {
        "reward_first_quarter": first,
        "reward_last_quarter": last,
        "releases": len(published),
        "requests": len(story.answered) + users.failures,
        "failed_requests": users.failures,
        **story.fates_of(story.answered),
    }
    (OUT / "summary.json").write_text(json.dumps(summary) + "\n")
    console.print(json.dumps(summary), soft_wrap=True)
    return 1 if users.failures else 0


if __name__ == "__main__":
    sys.exit(main())
