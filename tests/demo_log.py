"""The log of a demo that ran: `explain` says what topics and chain say, and it replays (issue 9).

`python -m tests.demo_log` after `make demo`, while everything still runs, prints one JSON line.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import httpx

from deploy.configuration import read_configuration
from deploy.demo.__main__ import CONFIG
from deploy.lakefs_access import find_lakefs_access
from deploy.services import gateway_url
from recipes.sao.examples.concise.traffic import SCENARIO
from release.chain import Chain
from schemas.blobs import open_blob_store
from schemas.bus import Reader, Resolver, SchemaLog, kafka_access
from schemas.errors import RejectedError
from schemas.events import (
    BatchSealed,
    CandidateTrained,
    Event,
    ExperienceAssembled,
    FeedbackReported,
    InferenceCompleted,
    ModelSwapped,
    OutcomeSettled,
    ReleasePublished,
)
from schemas.ids import Receipt, ScenarioName
from schemas.settings import Settings
from schemas.settings.secrets import kafka_login
from schemas.settings.settings import process_environment
from schemas.topics import CANDIDATES, EXPERIENCE, INTERACTIONS, OUTCOMES, RELEASES, SERVING, TRAINING

TOPICS = (INTERACTIONS, EXPERIENCE, TRAINING, CANDIDATES, RELEASES, SERVING, OUTCOMES)
NUM_CALLS = 200
Kind = TypeVar("Kind")
Place = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Told:
    """Everything that stands in the log, with its place."""

    events: list[tuple[Event, Place]] = field(default_factory=list)

    def of(self, kind: type[Kind]) -> list[tuple[Kind, Place]]:
        """Give the events of a kind, in log order."""
        return [(event, place) for event, place in self.events if isinstance(event, kind)]


async def read_log(settings: Settings) -> Told:
    """Read every topic to its end."""
    access = kafka_access(settings.kafka, kafka_login(settings, process_environment()))
    told = Told()
    async with Reader(access) as reader, SchemaLog(access) as schema_log:
        resolver = Resolver(schema_log, open_blob_store(settings.blobs_url))
        for topic in TOPICS:
            for number in range(settings.kafka.partitions):
                start = await reader.log_start(topic, number)
                async for record in reader.read_to_end(topic, number, start):
                    try:
                        event = await resolver.resolve(record)
                    except RejectedError:
                        continue
                    place = {"topic": topic, "partition": number, "offset": record.offset}
                    told.events.append((event, place))
    return told


def facts_in_log(told: Told, receipt: Receipt) -> dict[str, Any]:
    """Say of a call what its life is, from the events alone."""
    calls = [place for event, place in told.of(InferenceCompleted) if event.receipt == receipt]
    reports = [place for event, place in told.of(FeedbackReported) if receipt in event.references]
    made = [(event, place) for event, place in told.of(ExperienceAssembled) if receipt in event.receipts]
    ends = [(event, place) for event, place in told.of(OutcomeSettled) if event.receipt == receipt]
    end, settled = ends[-1] if ends else (None, None)
    batch_id = end.batch_id if end else None
    return {
        "call": (calls[0]["partition"], calls[0]["offset"]),
        "reports": reports,
        "experience": (made[0][0].experience_id, made[0][1]) if made else None,
        "state": end.state.value if end else "pending",
        "reason": end.reason.value if end and end.reason else None,
        "settled": settled,
        "batch_id": batch_id,
        "seal": _place_of(told, BatchSealed, batch_id),
        "training": _place_of(told, CandidateTrained, batch_id),
        "releases": [
            (event.release_id, place, _swaps_of(told, event))
            for event, place in told.of(ReleasePublished)
            if batch_id in event.batch_ids
        ],
    }


def _place_of(told: Told, kind: type[BatchSealed | CandidateTrained], batch_id: str | None) -> Place | None:
    found = [place for event, place in told.of(kind) if event.batch_id == batch_id]
    return found[0] if found else None


def _swaps_of(told: Told, release: ReleasePublished) -> list[Place]:
    return [place for event, place in told.of(ModelSwapped) if event.release_id == release.release_id]


def facts_told(life: Any) -> dict[str, Any]:
    """Say the same from what `explain` answered."""
    call, batch, experience = life["call"], life["batch"], life["experience"]
    return {
        "call": (call["partition"], call["offset"]),
        "reports": [report["place"] for report in call["reports"]],
        "experience": (experience["experience_id"], experience["place"]) if experience else None,
        "state": call["state"],
        "reason": call["reason"],
        "settled": call["settled_place"],
        "batch_id": call["batch_id"],
        "seal": batch["seal"]["place"] if batch and batch["seal"] else None,
        "training": batch["training"]["place"] if batch and batch["training"] else None,
        "releases": [
            (release["release_id"], release["place"], [swap["place"] for swap in release["swaps"]])
            for release in life["releases"]
        ],
    }


async def check_explanations(settings: Settings, told: Told, num_calls: int) -> dict[str, int]:
    """Compare random calls; and the releases named with the chain in lakeFS."""
    receipts = sorted({event.receipt for event, _ in told.of(InferenceCompleted)})
    chosen = Random(0).sample(receipts, min(num_calls, len(receipts)))
    access = find_lakefs_access(settings, process_environment())
    chain = await Chain(access, ScenarioName(SCENARIO), storage_namespace="").releases()
    on_chain = {release.release_id for release in chain}
    named: set[str] = set()
    async with httpx.AsyncClient(base_url=gateway_url(settings), timeout=60) as http:
        for receipt in chosen:
            life = (await http.get(f"/reef/explain/{receipt}")).raise_for_status().json()
            found, expected = facts_told(life), facts_in_log(told, receipt)
            assert found == expected, f"{receipt}: told {found}, in the log {expected}"
            named |= {release_id for release_id, _, _ in expected["releases"]}
    assert named <= on_chain, f"not on the chain: {named - on_chain}"
    return {"calls_explained": len(chosen), "releases_named": len(named), "releases_on_chain": len(on_chain)}


def check_replays(words: Sequence[str]) -> dict[str, Any]:
    """Replay twice: the same bytes, and sample by sample what was trained."""
    with TemporaryDirectory() as folder:
        first, again = Path(folder) / "first", Path(folder) / "again"
        one = _replay(*words, "--out", str(first), "--diff")
        other = _replay(*words, "--manifest", str(first / "manifest.json"), "--out", str(again))
    assert one["digest"] == other["digest"], (one["digest"], other["digest"])
    return {"digest": one["digest"], "num_events": one["num_events"], "difference": one["difference"]}


def _replay(*words: str) -> Any:
    command = [sys.executable, "-m", "deploy.cli", "replay", "-c", str(CONFIG), *words, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main(words: Sequence[str] | None = None) -> None:
    """Check explanations, then replays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=NUM_CALLS, help="calls whose explanation is compared")
    given, overrides = parser.parse_known_args(words)
    settings = read_configuration(CONFIG, overrides).settings

    async def check() -> dict[str, int]:
        return await check_explanations(settings, await read_log(settings), given.calls)

    found = asyncio.run(check())
    sys.stdout.write(json.dumps({**found, **check_replays(overrides)}) + "\n")


if __name__ == "__main__":
    main()
