"""Shell: `reef forget`: asks that calls be learned from no more, and tells what has learned from them.

The folds do the forgetting (streams/session.py, streams/batch.py); this writes the wish into every partition,
where each of them and every replay will meet it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Annotated

import typer

from deploy.configuration import ConfigFile
from deploy.erasure import (
    Reached,
    Remains,
    Touched,
    erasure_lines,
    erasure_object,
    last_untouched,
    remains,
    touched,
)
from deploy.forgotten_blobs import ForgottenBlobs, forgotten_blobs
from deploy.log_reach import LIMITS, Bootstrap, OpenLog, open_log, reach_log
from deploy.paper import paper
from deploy.progress import shown_step
from deploy.times import moment
from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Place, Placed, Publisher
from schemas.errors import RejectedError
from schemas.events import (
    CandidateTrained,
    ErasureRequested,
    Event,
    InferenceCompleted,
    OutcomeSettled,
    ReleasePublished,
    ScenarioConfigured,
    TrainingSample,
)
from schemas.ids import CandidateId, Receipt, ReleaseId, Session, is_receipt, route_of, route_of_session
from schemas.ids import scenario_name as read_scenario_name
from schemas.partitions import partition_of
from schemas.settings import Settings
from schemas.topic_admin import describe_topics
from schemas.topic_match import TopicFound
from schemas.topics import CANDIDATES, COMMANDS, EXPERIENCE, INTERACTIONS, OUTCOMES, RELEASES, TRAINING

RECEIPTS_MAX = 1_000
"""Calls that one command names; every fold remembers each of them for two weeks."""

ScenarioName = Annotated[str, typer.Option("--scenario", "-s", help="the scenario of the calls")]
SessionName = Annotated[str | None, typer.Option("--session", help="every call of this session")]
Receipts = Annotated[
    list[str] | None, typer.Option("--receipt", "-r", help="rec_…: a call; may be given many times")
]
KeepBlobs = Annotated[
    bool, typer.Option("--keep-blobs", help="leave the large fields of the calls in their blobs")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="write nothing, only tell what it would reach")]
Told = tuple[Reached, list[Touched], ReleasePublished | None, list[Remains]]
"""What was found, as deploy/erasure.py takes it."""
AsJson = Annotated[bool, typer.Option("--json", help="for machines")]


def forget(  # noqa: PLR0913, PLR0917 - the options of a command
    context: typer.Context,
    scenario: ScenarioName,
    session: SessionName = None,
    receipts: Receipts = None,
    keep_blobs: KeepBlobs = False,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Learn from these calls no more, and tell which releases have, and what stays in the log until when."""
    settings, access = reach_log(config, context.args, bootstrap)
    event = _event(scenario, session, receipts or ())
    with shown_step("looking for the calls and what became of them"):
        blobs, written, told = asyncio.run(
            _forget(settings, access, event, is_dry=dry_run, is_deleting=not keep_blobs and not dry_run)
        )
    if as_json:
        places = [{"topic": one.topic, "partition": one.partition, "offset": one.offset} for one in written]
        counts = {"deleted": 0 if keep_blobs or dry_run else len(blobs.own), "shared": len(blobs.shared)}
        head = {"scenario": event.scenario, "written": places, "blobs": {"own": len(blobs.own), **counts}}
        typer.echo(json.dumps({**head, **erasure_object(*told)}))
        return
    console = paper()
    if written:
        console.print(
            f"written into {len(written)} partitions of {INTERACTIONS}: from here on, in replays too, these "
            "calls enter no batch; what was sealed before stays in its batch",
            markup=False,
        )
    else:
        console.print("nothing is written: this only looks", markup=False)
    fate = "stay" if keep_blobs or dry_run else "are deleted"
    console.print(
        f"blobs: {len(blobs.own)} of these calls alone {fate}; {len(blobs.shared)} that other records name "
        "too stay",
        markup=False,
    )
    for line in erasure_lines(*told, when=moment):
        console.print(line, markup=False)


def _event(scenario: str, session: str | None, receipts: Sequence[str]) -> ErasureRequested:
    if not session and not receipts:
        raise typer.BadParameter("expected --session or --receipt, got neither: name some")
    if len(receipts) > RECEIPTS_MAX:
        raise typer.BadParameter(f"expected at most {RECEIPTS_MAX} receipts, got {len(receipts)}: split them")
    strangers = [receipt for receipt in receipts if not is_receipt(receipt)]
    if strangers:
        raise typer.BadParameter(
            f"expected receipts (rec_ and 45 characters), got {strangers[0][:80]!r}: an imported call has "
            "one too, see `reef explain`"
        )
    return ErasureRequested(
        scenario=read_scenario_name(scenario),
        session=Session(session) if session else None,
        receipts=tuple(dict.fromkeys(Receipt(receipt) for receipt in receipts)),
        requested_at_us=time.time_ns() // 1_000,
    )


async def _forget(
    settings: Settings, access: KafkaAccess, event: ErasureRequested, *, is_dry: bool, is_deleting: bool
) -> tuple[ForgottenBlobs, tuple[Placed, ...], Told]:
    """Write the wish, then look: what is sealed until the folds have read it shows up at a second look."""
    topics = await describe_topics(access, limits=LIMITS)
    _require_topics(topics)
    async with open_log(settings, access) as log:
        looking = _Looking(log, topics, event)
        await looking.require_scenario()
        store = open_blob_store(settings.blobs_url)
        written: tuple[Placed, ...] = ()
        if not is_dry:
            async with Publisher(access, blobs=store, limits=LIMITS) as publisher:
                written = await publisher.publish_to_all(event, topic=INTERACTIONS)
        blobs = await forgotten_blobs(
            log, topics, event.scenario, keys=looking.keys, is_forgotten=looking.is_named
        )
        for ref in blobs.own if is_deleting else ():
            await store.delete(ref)
        reached = await looking.reached()
        releases = await looking.releases()
        found = touched(releases, reached.batches, await looking.bases())
    kept = {name: topic.retention_ms for name, topic in topics.items()}
    stays = remains(kept, now_us=time.time_ns() // 1_000)
    return blobs, written, (reached, found, last_untouched(releases, found), stays)


def _require_topics(topics: Mapping[str, TopicFound]) -> None:
    needed = (INTERACTIONS, EXPERIENCE, TRAINING, OUTCOMES, RELEASES, CANDIDATES, COMMANDS)
    missing = [name for name in needed if name not in topics]
    if missing:
        raise RejectedError(
            f"expected the topics of a deployment, got none named {missing[0]}: name its brokers",
            reason="no_such_topic",
        )


class _Looking:
    """Reads the partitions that may hold something of the calls, decoding only records of their keys."""

    def __init__(self, log: OpenLog, topics: Mapping[str, TopicFound], event: ErasureRequested) -> None:
        self._log, self._topics, self._event = log, topics, event
        self._scenario_key = event.scenario.encode()
        keys = {route_of(receipt).encode() for receipt in event.receipts}
        if event.session is not None:
            keys.add(route_of_session(event.scenario, event.session).encode())
        self.keys = frozenset(keys)

    async def require_scenario(self) -> None:
        """Refuse a name that nobody configured: a wish about it would reach nothing, in silence."""
        async for event in self._events(COMMANDS, [self._scenario_key]):
            if isinstance(event, ScenarioConfigured):
                return
        raise RejectedError(
            f"expected a scenario that was configured, got {self._event.scenario!r}: see `reef status`",
            reason="no_such_scenario",
        )

    async def reached(self) -> Reached:
        """Find the calls, their outcomes and their batches."""
        reached, wish = Reached(), self._event
        async for event in self._events(INTERACTIONS, self.keys):
            if isinstance(event, InferenceCompleted) and self.is_named(event):
                reached.receipts.add(event.receipt)
        async for event in self._events(TRAINING, [self._scenario_key]):
            if isinstance(event, TrainingSample):
                self._take_sample(reached, event)
        asked = reached.receipts | set(wish.receipts)
        async for event in self._events(OUTCOMES, [receipt.encode() for receipt in asked]):
            if isinstance(event, OutcomeSettled) and event.scenario == wish.scenario:
                reached.receipts.add(event.receipt)
                reached.states[event.receipt] = (event.reason or event.state).value
                reached.batches |= {event.batch_id} if event.batch_id else set()
        return reached

    def is_named(self, event: InferenceCompleted) -> bool:
        """Whether a call is to be forgotten."""
        return event.scenario == self._event.scenario and self._names(event.receipt, event.session)

    def _names(self, receipt: Receipt, session: Session | None) -> bool:
        return receipt in self._event.receipts or (session is not None and session == self._event.session)

    def _take_sample(self, reached: Reached, event: TrainingSample) -> None:
        sample = event.experience
        named = {receipt for receipt in sample.receipts if self._names(receipt, sample.session)}
        if named:
            reached.receipts |= named
            reached.batches.add(event.batch_id)

    async def releases(self) -> list[ReleasePublished]:
        """Read the chain."""
        events = self._events(RELEASES, [self._scenario_key])
        return [event async for event in events if isinstance(event, ReleasePublished)]

    async def bases(self) -> dict[CandidateId, ReleaseId]:
        """Read from which release each candidate was trained."""
        events = self._events(CANDIDATES, [self._scenario_key])
        return {
            event.candidate_id: event.base_release_id
            async for event in events
            if isinstance(event, CandidateTrained)
        }

    async def _events(self, topic: str, keys: Collection[bytes]) -> AsyncIterator[Event]:
        """Give the events of the scenario that have these keys, each partition's in their order."""
        wanted, num_partitions = frozenset(keys), self._topics[topic].num_partitions
        for partition in sorted({partition_of(key, num_partitions) for key in wanted}):
            place = Place(topic, partition)
            async for record in self._log.reader.read_to_end(
                *place, await self._log.reader.log_start(*place)
            ):
                if record.key not in wanted:
                    continue
                try:
                    event = await self._log.event(record, is_whole=False)
                except RejectedError:
                    continue  # what no fold takes reaches no batch
                if getattr(event, "scenario", None) == self._event.scenario:
                    yield event
