"""Shell: a scenario's chain of releases in lakeFS: append-only, one link at a time, by compare-and-swap.

`main` is protected: links come by merges alone, from branches that begin at the head's commit. Whoever is
second changed `HEAD.json` too, so his merge is refused and his branch stays for inspection. Tags are created
once. Nothing is decided here.

Next: schemas/events/releases.py
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from release.head import HEAD_NAME, Evaluated, Head, Release, decode_head, repository_of, tag_of
from release.repository import MAIN, Commit, LakefsLimits, Repository
from schemas.artifact_fetch import ARTIFACT_PREFIX, LakefsAccess
from schemas.errors import ConflictError, RejectedError
from schemas.ids import ReleaseId, ScenarioName
from schemas.manifest import MANIFEST_NAME, Manifest, decode_manifest

TAG_PREFIX = "rel-"
PUBLISHED_AT = "published_at_us"
EVALUATED = "evaluated"
NAMESPACE_BYTES = 4
PIN_PREFIX, PIN_CHARS = "content-", 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Files to be published: what they are, and where they lie."""

    manifest: Manifest
    """Names the files."""
    manifest_bytes: bytes
    """`manifest.json` to the byte."""
    folder: Path | None
    """Where the files are; None when they stay where HEAD.json says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A branch with a commit that can be merged."""

    branch: str
    """Its name."""
    commit_id: str
    """Its commit."""
    head: Head
    """What it publishes."""


class Chain:
    """The releases of one scenario."""

    def __init__(
        self,
        access: LakefsAccess,
        scenario: ScenarioName,
        *,
        storage_namespace: str,
        limits: LakefsLimits | None = None,
    ) -> None:
        self.scenario = scenario
        self._repository = Repository(access, repository_of(scenario), limits=limits)
        self._storage_namespace = storage_namespace
        self._known: dict[str, Release] = {}

    async def create(self) -> None:
        """Make the repository, or leave it as it is."""
        if not await self._repository.exists():
            prefix = self._storage_namespace
            separator = "" if prefix.endswith("/") else "/"
            name = (
                f"{self._repository.name}-{token_hex(NAMESPACE_BYTES)}"  # no two makers meet in the storage
            )
            await self._repository.create(f"{prefix}{separator}{name}")
        await self._repository.protect_main()

    async def releases(self) -> tuple[Release, ...]:
        """Give the chain, oldest first. Raises RejectedError `broken_chain` when it is none."""
        commits = await self._links()
        found = tuple([await self._release(commit) for commit in commits])
        check_linear(found)
        return found

    async def root(self) -> str:
        """Give the commit before release 0."""
        return (await self._repository.log(MAIN))[-1].commit_id

    async def manifest(self, commit_id: str) -> Manifest:
        """Read the manifest of a commit. Raises RejectedError."""
        return decode_manifest(await self._repository.get(commit_id, MANIFEST_NAME))

    async def branch(self, name: str, parent: Release | None) -> None:
        """Begin a branch at a release, or before the first one."""
        await self._repository.create_branch(name, parent.release_id if parent else await self.root())

    async def upload(self, branch: str, artifact: Artifact) -> None:
        """Write an artifact onto a branch in place of what is there, several files at once."""
        await self._repository.put(branch, MANIFEST_NAME, artifact.manifest_bytes)
        folder, put = artifact.folder, self._repository.put_file
        files = artifact.manifest.files if folder is not None else ()
        try:
            async with asyncio.TaskGroup() as group:
                for file in files:
                    group.create_task(put(branch, ARTIFACT_PREFIX + file.path, folder or Path(), file))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        kept = {ARTIFACT_PREFIX + file.path for file in files}
        there = await self._repository.paths(branch, ARTIFACT_PREFIX)
        await self._repository.remove(branch, [path for path in there if path not in kept])

    async def commit(self, branch: str, head: Head) -> Prepared:
        """Write HEAD.json and commit."""
        await self._repository.put(branch, HEAD_NAME, head.encode())
        commit_id = await self._repository.commit(branch, f"{head.operation} {tag_of(head.release_seq)}")
        return Prepared(branch=branch, commit_id=commit_id, head=head)

    async def prepared(self, prefix: str) -> tuple[Prepared, ...]:
        """Give the committed branches of earlier attempts, by the beginning of their names."""
        links = {commit.commit_id for commit in await self._repository.log(MAIN)}
        found = await self._repository.branches(prefix)
        return tuple(
            [
                Prepared(branch=name, commit_id=commit_id, head=await self._head_at(commit_id))
                for name, commit_id in sorted(found.items())
                if commit_id not in links
            ]
        )

    async def prepared_at(self, prefix: str, commit_id: str) -> Prepared | None:
        """Give the branch whose newest commit this is; None where no branch that begins so has it."""
        for name, found in (await self._repository.branches(prefix)).items():
            if found == commit_id:
                return Prepared(branch=name, commit_id=commit_id, head=await self._head_at(commit_id))
        return None

    async def merge(self, prepared: Prepared, evaluated: Evaluated, *, now_us: int) -> Release:
        """Make a prepared commit the head. Raises ConflictError when it was second, or is merged already."""
        release_id = await self._repository.merge(
            prepared.branch,
            message=f"{prepared.head.operation} {tag_of(prepared.head.release_seq)}",
            metadata=merge_metadata(evaluated, now_us),
        )
        return Release(
            release_id=ReleaseId(release_id), head=prepared.head, published_at_us=now_us, evaluated=evaluated
        )

    async def tags(self) -> Mapping[str, str]:
        """Give the tags of releases, and their commits."""
        return await self._repository.tags(TAG_PREFIX)

    async def tag(self, release: Release) -> None:
        """Tag a release, once for all time. Raises ConflictError when the tag names another commit."""
        name = tag_of(release.seq)
        try:
            await self._repository.tag(name, release.release_id)
        except ConflictError as error:
            if (await self.tags()).get(name) != release.release_id:
                raise ConflictError(
                    f"expected {name} of {self._repository.name} to name {release.release_id}, got another "
                    "commit: tags are never moved; look at who made it",
                    reason="foreign_tag",
                ) from error

    async def pin(self, commit_id: str) -> None:
        """Keep a commit's files from lakeFS's garbage collection, whatever its age: a branch points at it."""
        await self._repository.create_branch(PIN_PREFIX + commit_id[:PIN_CHARS], commit_id)

    async def drop_branch(self, prepared: Prepared) -> None:
        """Remove the branch of a merged commit, which `main` holds now; one that is gone is gone."""
        try:
            await self._repository.delete_branch(prepared.branch)
        except RejectedError as error:
            if error.reason != "not_found":
                raise

    async def branches(self) -> tuple[str, ...]:
        """Name all branches but `main`: what is in work, what waits, and what lost."""
        return tuple(sorted(name for name in await self._repository.branches("") if name != MAIN))

    async def tidy(self, is_settled: Callable[[str], bool]) -> None:
        """Remove branches that were merged, and unfinished ones of what is settled; losers stay."""
        log = await self._repository.log(MAIN)
        links = {commit.commit_id for commit in log}
        merged = {parent_id for commit in log for parent_id in commit.parent_ids[1:]}
        for name, commit_id in (await self._repository.branches("")).items():
            is_unfinished = commit_id in links and is_settled(name)
            if name != MAIN and (commit_id in merged or is_unfinished):
                await self._repository.delete_branch(name)

    async def _links(self) -> Sequence[Commit]:
        """Oldest first, without the commit that lakeFS itself begins with."""
        return [commit for commit in reversed(await self._repository.log(MAIN)) if commit.parent_ids]

    async def _release(self, commit: Commit) -> Release:
        if commit.commit_id not in self._known:
            published_at_us, evaluated = read_merge_metadata(commit)
            self._known[commit.commit_id] = Release(
                release_id=ReleaseId(commit.commit_id),
                head=await self._head_at(commit.commit_id),
                published_at_us=published_at_us,
                evaluated=evaluated,
            )
        return self._known[commit.commit_id]

    async def _head_at(self, commit_id: str) -> Head:
        return decode_head(await self._repository.get(commit_id, HEAD_NAME))


def merge_metadata(evaluated: Evaluated, now_us: int) -> dict[str, str]:
    """Keep with the merge what only its maker knows."""
    body = {"metrics": dict(evaluated.metrics), "baseline_metrics": dict(evaluated.baseline_metrics)}
    return {PUBLISHED_AT: str(now_us), EVALUATED: json.dumps(body, sort_keys=True)}


def read_merge_metadata(commit: Commit) -> tuple[int, Evaluated]:
    """Read it again; a merge made by hand has the commit's own time, to the second."""
    told = commit.metadata
    body = json.loads(told.get(EVALUATED, "{}"))
    evaluated = Evaluated(metrics=body.get("metrics", {}), baseline_metrics=body.get("baseline_metrics", {}))
    return int(told.get(PUBLISHED_AT, commit.created_at_s * 1_000_000)), evaluated


def check_linear(releases: Sequence[Release]) -> None:
    """Check that each release names the one before it as its parent. Raises RejectedError."""
    parent_id: ReleaseId | None = None
    for seq, release in enumerate(releases):
        if (release.seq, release.head.parent_release_id) != (seq, parent_id):
            raise RejectedError(
                f"expected release {seq} on {parent_id} in the chain of {release.head.scenario}, got release "
                f"{release.seq} on {release.head.parent_release_id} at commit {release.release_id}: somebody "
                "else merged into main; restore it to the last rel- tag",
                reason="broken_chain",
            )
        parent_id = release.release_id
