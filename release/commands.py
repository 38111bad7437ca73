"""Shell: an operator's command is carried out once, or refused once, whoever dies meanwhile.

Rollback and promotion publish a new release that names content which is in the repository already. A head
that moved under a command is no refusal unless the command named the head that it expects.
"""

from dataclasses import replace

from release.candidates import completed
from release.chain import Artifact, Chain
from release.decisions import check_command, check_held, rollback_target
from release.desk import Desk
from release.drafts import Draft, branch_prefix, promote, rollback
from release.head import Evaluated, Release, commit_in, commit_uri
from release.log import Seen
from release.publish import merge, prepare
from release.reconcile import announce
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.events import Operation, PromoteCandidate, RollBackRelease
from schemas.ids import CandidateId

Command = RollBackRelease | PromoteCandidate


async def obey(desk: Desk, seen: Seen) -> None:
    """Answer a command, unless it is answered already. Raises UnavailableError: then it is taken again."""
    command = seen.event
    assert isinstance(command, RollBackRelease | PromoteCandidate), "only commands are in this line"
    if command.command_id in desk.memory.refused:
        return
    try:
        if isinstance(command, PromoteCandidate):
            command = await named(desk.means.chain, command)
            await desk.until_decided(command.candidate_id)
        await _carry_out(desk, command)
    except (RejectedError, ConflictError) as error:
        await _refuse(desk, seen, command, error)


async def named(chain: Chain, command: PromoteCandidate) -> PromoteCandidate:
    """Name the candidate where a command names the commit of the branch on which it waits (RULINGS 37)."""
    held = await chain.prepared_at(branch_prefix(Operation.TRAINING, ""), command.candidate_id)
    if held is None or held.head.candidate_id is None:
        return command
    return replace(command, candidate_id=held.head.candidate_id)


async def _refuse(desk: Desk, seen: Seen, command: Command, error: ReefError) -> None:
    await desk.log.refuse(seen.record, error)
    desk.memory.refused.add(command.command_id)
    desk.means.metrics.answered(desk.means.scenario, error)
    desk.means.passed("refused")


async def _carry_out(desk: Desk, command: Command) -> None:
    for _ in range(desk.means.settings.limits.command_tries_max):
        releases = await completed(desk)
        if _is_done(command, releases):
            return
        limits = desk.means.settings.limits
        check_command(command, releases, now_us=desk.means.now_us(), age_s_max=limits.command_age_s_max)
        draft = await _draft(desk, command, releases)
        try:
            await _publish(desk, draft, releases)
        except ConflictError:
            continue  # somebody else was first; look again
        desk.means.metrics.answered(desk.means.scenario, None)
        return
    raise UnavailableError(
        f"expected to publish after {desk.means.settings.limits.command_tries_max} tries, got another head "
        "each time: it is tried again",
        reason="busy_chain",
    )


def _is_done(command: Command, releases: tuple[Release, ...]) -> bool:
    return any(release.head.command_id == command.command_id for release in releases)


async def _draft(desk: Desk, command: Command, releases: tuple[Release, ...]) -> Draft:
    if isinstance(command, RollBackRelease):
        return rollback(command, rollback_target(command, releases))
    check_held(command, desk.memory.verdicts)
    return await held_draft(desk.means.chain, command)


async def held_draft(chain: Chain, command: PromoteCandidate) -> Draft:
    """Find the branch where a held candidate waits. Raises RejectedError."""
    prefix = branch_prefix(Operation.TRAINING, CandidateId(command.candidate_id))
    for found in await chain.prepared(prefix):
        return promote(command, found.head, artifact_uri=commit_uri(chain.scenario, found.commit_id))
    raise RejectedError(
        f"expected a branch {prefix}* of the held candidate, got none: its branch was removed, it cannot be "
        "promoted any more",
        reason="artifact_unavailable",
    )


async def _publish(desk: Desk, draft: Draft, releases: tuple[Release, ...]) -> None:
    means = desk.means
    commit_id = commit_in(draft.artifact_uri or "")
    manifest = await means.chain.manifest(commit_id or releases[0].release_id)
    if commit_id is not None:
        await means.chain.pin(commit_id)
    artifact = Artifact(manifest=manifest, manifest_bytes=manifest.encode(), folder=None)
    async with desk.publishing:
        prepared = await prepare(means.chain, draft, artifact, releases, means.passed)
        release = await merge(means.chain, prepared, Evaluated(), means.now_us, means.passed)
        await announce((release,), desk.memory, desk.log, means.passed)
        await means.chain.drop_branch(prepared)
    means.metrics.published(release)
    means.metrics.head(release)
