"""Shell: a trained candidate gets its one verdict: refused, held, or published as the next release.

The order is the correctness: gate, branch, upload, commit, evaluation, merge, tag, events, and only then is
the export removed. Killed anywhere, the candidate is taken again and ends the same way.
"""

import asyncio
import shutil
from time import perf_counter

import structlog

from release.chain import Artifact, Prepared
from release.decisions import candidate_evaluated, reason_of
from release.desk import Desk
from release.drafts import training
from release.evaluation import Content, Measured, Subject, verdict_of
from release.gate import Facts, judge_base, judge_files
from release.head import Release, candidate_accepted, incumbent_of
from release.inspection import NOTHING, folder_of, inspect
from release.publish import merge, prepare
from release.reconcile import announce, complete
from schemas.errors import ConflictError, RejectedError, UnavailableError
from schemas.events import CandidateTrained, Verdict
from schemas.ids import Sha256
from schemas.kinds import is_weights
from schemas.manifest import MANIFEST_NAME, Manifest, manifest_sha256

DISK_FULL = "disk_full"

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def consider(desk: Desk, candidate: CandidateTrained) -> None:
    """Decide a candidate, unless it is decided already. Raises UnavailableError: then it is taken again."""
    if not candidate.is_publishable:
        return
    if candidate.candidate_id not in desk.memory.verdicts:
        releases = await completed(desk)
        if candidate.candidate_id not in desk.memory.verdicts:
            await _decide(desk, candidate, releases)
    await asyncio.to_thread(remove_export, candidate)


async def completed(desk: Desk) -> tuple[Release, ...]:
    """Complete what stands on `main`, and give it."""
    means = desk.means
    async with desk.publishing:
        releases = await complete(means.chain, desk.memory, desk.log, means.passed)
    means.metrics.head(releases[-1])
    return releases


async def _decide(desk: Desk, candidate: CandidateTrained, releases: tuple[Release, ...]) -> None:
    began_s = perf_counter()
    reasons = judge_base(candidate, releases)
    facts = NOTHING if reasons else await _facts(candidate)
    reasons = reasons or judge_files(candidate, facts, desk.means.base_shapes)
    if reasons:
        return await _conclude(desk, candidate, Verdict.REJECTED, Measured(reasons=reasons))
    assert facts.manifest is not None, "the gate lets no candidate without one pass"
    refuse_full_disk(desk, facts.manifest)
    try:
        prepared = await _prepared(desk, candidate, facts, releases)
    except RejectedError as error:
        reason = reason_of(error)
        if reason is None:
            raise
        return await _conclude(desk, candidate, Verdict.REJECTED, Measured(reasons=(reason,)))
    incumbent = incumbent_of(releases, facts.manifest.kind)
    measured = await _measured(desk, candidate, facts.manifest, incumbent)
    verdict = verdict_of(measured, desk.means.choice.publish)
    if verdict is not Verdict.ACCEPTED:
        return await _conclude(desk, candidate, verdict, measured)
    if is_weights(facts.manifest.kind):  # trainer and engines beside this want them; a tree must not crowd
        await asyncio.to_thread(desk.means.artifacts.keep, folder_of(candidate.artifact_uri), facts.manifest)
    await _publish(desk, candidate, prepared, measured)
    desk.means.metrics.took(desk.means.scenario, perf_counter() - began_s)


async def _facts(candidate: CandidateTrained) -> Facts:
    try:
        folder = folder_of(candidate.artifact_uri)
    except RejectedError as error:
        _log.warning("candidate_unreachable", candidate_id=candidate.candidate_id, detail=str(error))
        return NOTHING
    return await asyncio.to_thread(inspect, folder)


def refuse_full_disk(desk: Desk, manifest: Manifest) -> None:
    """Stop before anything is half written. Raises UnavailableError."""
    settings = desk.means.settings
    free = shutil.disk_usage(settings.state_dir).free
    if free - manifest.num_bytes < settings.evaluation.free_bytes_min:
        raise UnavailableError(
            f"expected {settings.evaluation.free_bytes_min} bytes free behind a release of "
            f"{manifest.num_bytes}, got {free} on the disk of {settings.state_dir}: make room, or lower "
            "evaluation.free_bytes_min; candidates wait until then",
            reason=DISK_FULL,
        )


async def _prepared(
    desk: Desk, candidate: CandidateTrained, facts: Facts, releases: tuple[Release, ...]
) -> Prepared:
    assert facts.manifest is not None, "the gate lets no candidate without one pass"
    artifact = Artifact(
        manifest=facts.manifest,
        manifest_bytes=facts.manifest_bytes,
        folder=folder_of(candidate.artifact_uri),
    )
    draft = training(candidate, facts.manifest, releases[-1])
    return await prepare(desk.means.chain, draft, artifact, releases, desk.means.passed)


async def _measured(
    desk: Desk, candidate: CandidateTrained, manifest: Manifest, incumbent: Release
) -> Measured:
    means = desk.means
    began_s = perf_counter()
    subject = Subject(
        candidate=_content(candidate, manifest),
        incumbent=await asyncio.to_thread(_incumbent, desk, incumbent),
        model_folder=means.settings.base.folder,
        metrics=candidate.metrics,
        device=means.choice.device,
        engine=means.choice.engine,
        incumbent_scores=None,
    )
    measured = await means.evaluates.measure(subject)
    means.passed("evaluated")
    means.metrics.evaluated(means.scenario, perf_counter() - began_s)
    return measured


def _incumbent(desk: Desk, release: Release) -> Content:
    """Bring the incumbent's files here, if anybody looks at them. Raises RejectedError, UnavailableError."""
    means, content = desk.means, release.head.content_sha256
    folder = means.settings.base.folder
    if means.evaluates.looks_at_files:
        folder = means.artifacts.fetch(release.artifact_uri, content)
    return Content(kind=release.head.kind, folder=folder, content_sha256=content)


def _content(candidate: CandidateTrained, manifest: Manifest) -> Content:
    return Content(
        kind=manifest.kind,
        folder=folder_of(candidate.artifact_uri),
        content_sha256=manifest.content_sha256,
    )


async def _publish(desk: Desk, candidate: CandidateTrained, prepared: Prepared, measured: Measured) -> None:
    """Merge, tag, announce. Who was second is refused, unless somebody else published this very candidate."""
    means = desk.means
    try:
        async with desk.publishing:
            release = await merge(means.chain, prepared, measured.evaluated, means.now_us, means.passed)
            await announce((release,), desk.memory, desk.log, means.passed)
            await means.chain.drop_branch(prepared)
    except ConflictError:
        await _overtaken(desk, candidate, prepared, measured)
        return
    means.metrics.decided(candidate_accepted(release))
    means.metrics.published(release)
    means.metrics.head(release)


async def _overtaken(desk: Desk, candidate: CandidateTrained, prepared: Prepared, measured: Measured) -> None:
    """Refuse it, or take it again: what was published meanwhile may not concern it."""
    releases = await completed(desk)
    if candidate.candidate_id in desk.memory.verdicts:
        return
    reasons = judge_base(candidate, releases)
    if not reasons and releases[-1].release_id != prepared.head.parent_release_id:
        return await consider(desk, candidate)
    if not reasons:
        raise UnavailableError(
            f"expected to merge candidate {candidate.candidate_id} on the head that it was trained from, got "
            "a conflict: it is tried again",
            reason="merge_refused",
        )
    refused = Measured(reasons=reasons, metrics=measured.metrics, baseline_metrics=measured.baseline_metrics)
    await _conclude(desk, candidate, Verdict.REJECTED, refused)


async def _conclude(desk: Desk, candidate: CandidateTrained, verdict: Verdict, measured: Measured) -> None:
    event = candidate_evaluated(candidate, verdict, measured, now_us=desk.means.now_us())
    await desk.log.announce(event)
    desk.memory.note(event)
    desk.means.metrics.decided(event)
    desk.means.passed("announced")


def remove_export(candidate: CandidateTrained) -> None:
    """Remove a decided candidate's folder, if it is really that: nothing else is ever removed."""
    try:
        folder = folder_of(candidate.artifact_uri)
        data = (folder / MANIFEST_NAME).read_bytes()
    except (RejectedError, OSError):
        return
    if manifest_sha256(data) == Sha256(candidate.manifest_sha256):
        shutil.rmtree(folder, ignore_errors=True)
