"""Shell: the candidate that is likely to be requested next, so that engines can stage it while it is judged.

Publication takes seconds, and so does staging. Nothing is exchanged before a request: a candidate that is
refused costs a staging, and is never served.
"""

import asyncio
from collections.abc import Callable

import structlog

from gateway.release_folders import ReleaseFolders
from gateway.swap import Swap
from gateway.target import Content, Target
from schemas.artifact_fetch import local_folder
from schemas.artifacts import read_manifest
from schemas.errors import ReefError, RejectedError
from schemas.events import ArtifactKind, CandidateEvaluated, CandidateTrained, Event

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Ahead:
    """The newest candidate that has no verdict yet."""

    def __init__(self) -> None:
        """Know of none."""
        self._candidate: CandidateTrained | None = None

    def hear(self, event: Event) -> bool:
        """Take a fact from the log; whether there is a new candidate."""
        match event:
            case CandidateTrained(is_publishable=True, kind=ArtifactKind.CHECKPOINT):
                self._candidate = event
                return True
            case CandidateEvaluated() if self._is_about(event):
                self._candidate = None
        return False

    def _is_about(self, verdict: CandidateEvaluated) -> bool:
        return self._candidate is not None and self._candidate.candidate_id == verdict.candidate_id

    async def take(self, serving: Target) -> Content | None:
        """Give the candidate's content, once, if it was trained from what serves and lies on this machine."""
        candidate, self._candidate = self._candidate, None
        if candidate is None or candidate.scenario != serving.scenario:
            return None
        if candidate.base_release_id != serving.release_id:
            return None  # it will be refused as superseded
        return await asyncio.to_thread(_content_of, candidate)

    async def stage(
        self, serving: Target, folders: ReleaseFolders, swap: Swap, is_likely: Callable[[Content], bool]
    ) -> None:
        """Have the engines stage it, for as long as it is likely; that may fail, which nobody waits for."""
        content = await self.take(serving)
        if content is None:
            return
        try:
            folder = await asyncio.to_thread(folders.materialize, content)
            await swap.stage_ahead(content, folder, is_wanted=lambda: is_likely(content))
        except ReefError as error:
            _log.info("not_staged_ahead", reason=error.reason, detail=str(error))


def _content_of(candidate: CandidateTrained) -> Content | None:
    folder = local_folder(candidate.artifact_uri)
    if folder is None:
        return None
    try:
        manifest, _ = read_manifest(folder)
    except RejectedError:
        return None  # removed, for it has its verdict
    return Content(
        kind=candidate.kind, artifact_uri=candidate.artifact_uri, content_sha256=manifest.content_sha256
    )
