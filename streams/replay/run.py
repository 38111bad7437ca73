"""Shell: one replay from its request to its digest: look, fetch, fold, write, compare.

Reads the log and writes files, or replay topics; nothing that a service obeys. What is between is
streams/replay/stages.py, in processes side by side.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic

from schemas.contract import newest_versions
from schemas.events import ExperienceAssembled
from schemas.ids import BatchId
from schemas.recipe import load_recipe
from schemas.topics import EXPERIENCE, INTERACTIONS
from streams.replay.change import Change, changed
from streams.replay.code import code_version, writer_version
from streams.replay.compare import compared
from streams.replay.destination import REPLAYED, ReplayTopics
from streams.replay.fetch import Fetch, fetch
from streams.replay.found import Found
from streams.replay.look import Looked, check_targets, live_batches, look
from streams.replay.manifest import Manifest, differences
from streams.replay.outlet import BEFORE, REFUSED
from streams.replay.plan import BATCHES, SESSIONS, Facts, Plan, Tally
from streams.replay.request import Deployment, Request, Result, Show
from streams.replay.said import all_said, digest_of_said
from streams.replay.stages import fold_batches, fold_sessions
from streams.replay.tables import digest_of
from streams.replay.workers import Crew

MANIFEST, RESULT = "manifest.json", "result.json"
UNSTABLE = frozenset({"seconds", "warnings", "difference"})
"""What two replays of one manifest may tell differently: it is said, not written."""


@dataclass(slots=True)
class _Clock:
    """How long each step takes."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since_s: float = field(default_factory=monotonic)

    def end(self, step: str) -> None:
        now_s = monotonic()
        self.seconds[step] = round(now_s - self._since_s, 3)
        self._since_s = now_s


def replay(request: Request, deployment: Deployment, work: Path, show: Show) -> Result:
    """Replay, in this order, since each step needs the one before.

    1. Refuse what cannot be: ranges that the log lacks, targets that are live or in use.
    2. Fetch the inputs, and look up what holds for all of them.
    3. Write the manifest, before anything that it explains.
    4. Fold sessions, then batches, partitions side by side.
    5. Compare with what happened; write topics; digest everything.
    """
    check_targets(request)
    with Crew(request.jobs) as crew:
        return _replayed(request, deployment, work, show, crew)


def _replayed(request: Request, deployment: Deployment, work: Path, show: Show, crew: Crew) -> Result:
    clock = _Clock()
    looked = asyncio.run(look(request, deployment))
    clock.end("look")
    found = _fetch_all(deployment, work, looked, show, crew)
    clock.end("fetch")
    manifest = _manifest(request, looked, found)
    _write_manifest(request.out, manifest)
    live = asyncio.run(live_batches(deployment, looked, found, manifest.change))
    plan = _plan(request, work, looked, found, manifest.change, live)
    tally = _fold_all(plan, looked, show, clock, crew)
    difference = asyncio.run(compared(request, deployment, plan, looked)) if request.is_compared else None
    clock.end("compare")
    outputs = _digests(request, plan, deployment)
    clock.end("write")
    result = _result(manifest, found, tally, outputs, clock)
    result.difference = difference
    result.warnings = () if request.manifest is None else differences(request.manifest, manifest)
    if request.out is not None:
        stable = {name: value for name, value in asdict(result).items() if name not in UNSTABLE}
        (request.out / RESULT).write_text(json.dumps(stable, indent=2, sort_keys=True) + "\n")
    return result


# ---- 2: fetching -------------------------------------------------------------------------------------------


def _fetch_all(deployment: Deployment, work: Path, looked: Looked, show: Show, crew: Crew) -> Found:
    bare = Plan(work=work, num_interactions=0, num_experience=0, facts=Facts())
    tasks = [
        Fetch(
            access=deployment.access,
            blobs_url=deployment.blobs_url,
            place=place,
            bounds=bounds,
            log_end=looked.held[place].end,
            begins_at_us=looked.begins_at_us,
            prelude=looked.prelude,
            path=bare.input_of(place),
        )
        for place, bounds in sorted(looked.ranges.items())
    ]
    total = looked.size(INTERACTIONS) + looked.size(EXPERIENCE)
    found = Found()
    for each in crew.do(fetch, tasks, size=total, tell=lambda done: show("reading", done, total)):
        found.add(each)
    return found


def _manifest(request: Request, looked: Looked, found: Found) -> Manifest:
    change = request.change if request.manifest is None else request.manifest.change
    configured = [changed(event, change, load_recipe) for event in found.configured.values()]
    return Manifest(
        ranges=looked.ranges,
        schemas={name: version.fingerprint.hex() for name, version in newest_versions().items()},
        change=change,
        recipes={event.scenario: event.recipe_digest for event in configured},  # type: ignore[union-attr]
        code=code_version(),
        writer=writer_version(),
    )


def _write_manifest(out: Path | None, manifest: Manifest) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / MANIFEST).write_text(manifest.text())


def _plan(
    request: Request,
    work: Path,
    looked: Looked,
    found: Found,
    change: Change,
    live: frozenset[BatchId] | None,
) -> Plan:
    kept = {EXPERIENCE} if change else set()
    if request.is_compared or request.out is None:
        kept = set(REPLAYED)
    return Plan(
        work=work,
        num_interactions=looked.number(INTERACTIONS),
        num_experience=looked.number(EXPERIENCE),
        facts=Facts(
            erasures=found.ordered_erasures(),
            releases={name: frozenset(seqs) for name, seqs in found.releases.items()},
            live_batches=live,
        ),
        out=request.out,
        change=change,
        kept=frozenset(kept),
        begins_at_us=looked.begins_at_us,
    )


# ---- 4: folding --------------------------------------------------------------------------------------------


def _fold_all(plan: Plan, looked: Looked, show: Show, clock: _Clock, crew: Crew) -> Tally:
    tally = Tally()
    for stage, work, topic, count in (
        (SESSIONS, fold_sessions, INTERACTIONS, plan.num_interactions),
        (BATCHES, fold_batches, EXPERIENCE, plan.num_experience),
    ):
        size = looked.size(topic)
        if plan.change and stage == BATCHES:
            size += tally.counts[ExperienceAssembled.__name__]
        tell = partial(_told, show, stage, size)
        for each in crew.do(partial(work, plan), range(count), size=size, tell=tell):
            tally.add(each)
        clock.end(stage)
    return tally


def _told(show: Show, stage: str, total: int, done: int) -> None:
    show(stage, done, total)


# ---- 5: comparing and writing ------------------------------------------------------------------------------


def _digests(request: Request, plan: Plan, deployment: Deployment) -> Mapping[str, str]:
    """Digest the files, or else what was said to each topic; write replay topics if asked."""
    if request.suffix is not None:
        asyncio.run(_write_topics(request.suffix, plan, deployment))
    if request.out is not None:
        files = sorted(request.out.rglob("*.parquet"))
        return {str(path.relative_to(request.out)): digest_of(path) for path in files}
    return {topic: digest_of_said(plan, topic) for topic in REPLAYED}


async def _write_topics(suffix: str, plan: Plan, deployment: Deployment) -> None:
    async with ReplayTopics(
        deployment.access,
        deployment.blobs_url,
        suffix,
        num_partitions=plan.num_experience,
        copies=deployment.copies,
    ) as topics:
        for topic in REPLAYED:
            await topics.write(topic, all_said(plan, topic))


def _result(
    manifest: Manifest, found: Found, tally: Tally, outputs: Mapping[str, str], clock: _Clock
) -> Result:
    lines = "".join([f"{digest}  {name}\n" for name, digest in sorted(outputs.items())])
    refused = {name: count for name, count in tally.counts.items() if name.startswith(REFUSED)}
    said = {name: count for name, count in tally.counts.items() if name not in refused and name != BEFORE}
    return Result(
        digest=sha256(lines.encode()).hexdigest(),
        manifest_digest=manifest.digest(),
        num_events=tally.num_events,
        counts=dict(sorted(said.items())),
        refused={name.removeprefix(REFUSED): count for name, count in sorted(refused.items())},
        num_undecodable=found.num_undecodable,
        num_before_range=tally.counts[BEFORE],
        num_erasures=len(found.erasures),
        outputs=dict(sorted(outputs.items())),
        seconds=clock.seconds,
        warnings=(),
    )
