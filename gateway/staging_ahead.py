"""Shell: the candidate that is likely to be requested next, so that engines can stage it while it is judged.

Publication takes seconds, and so does staging. Nothing is exchanged before a request: a candidate that is
refused costs a staging, and is never served.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from gateway.release_folders import ReleaseFolders
from gateway.swap import Swap
from gateway.target import Content, Target
from schemas.artifact_fetch import local_folder
from schemas.artifacts import read_manifest
from schemas.errors import ReefError, RejectedError
from schemas.events import ArtifactKind, CandidateEvaluated, CandidateTrained, Event
from schemas.ids import Sha256

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Ahead:
    """The newest candidate that has no verdict yet, and what is staged of it."""

    def __init__(self) -> None:
        """Know of none."""
        self._candidate: CandidateTrained | None = None
        self._staged: tuple[Sha256, float] | None = None

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

    async def take(self, serving: Target) -> tuple[Content, Path] | None:
        """Give the candidate's content and folder, once, if it was trained from what serves and lies here."""
        candidate, self._candidate = self._candidate, None
        if candidate is None or candidate.scenario != serving.scenario:
            return None
        if candidate.base_release_id != serving.release_id:
            return None  # it will be refused as superseded
        return await asyncio.to_thread(_found, candidate)

    def take_staged_s(self, content: Content) -> float | None:
        """Say, once, how long this content took to be staged, if that was the last thing staged."""
        staged, self._staged = self._staged, None
        return staged[1] if staged is not None and staged[0] == content.content_sha256 else None

    async def stage(
        self, serving: Target, folders: ReleaseFolders, swap: Swap, is_likely: Callable[[Content], bool]
    ) -> None:
        """Have the engines stage the candidate while its files are checked, for as long as it is likely.

        That may fail, which nobody waits for. What was staged counts only if its files prove to be whole.
        """
        taken = await self.take(serving)
        if taken is None:
            return
        content, folder = taken
        self._staged = None
        staging = swap.stage_ahead(content, folder, is_wanted=lambda: is_likely(content))
        checking = asyncio.to_thread(folders.materialize, content)
        staged_s, checked = await asyncio.gather(staging, checking, return_exceptions=True)
        for failed in (staged_s, checked):
            if isinstance(failed, ReefError):
                _log.info("not_staged_ahead", reason=failed.reason, detail=str(failed))
                return
            if isinstance(failed, BaseException):
                raise failed
        assert isinstance(staged_s, float), "what is no failure is how long it took"
        self._staged = (content.content_sha256, staged_s)
        _log.info("staged_ahead", content_sha256=content.content_sha256, stage_ms=round(1000 * staged_s, 1))


def _found(candidate: CandidateTrained) -> tuple[Content, Path] | None:
    folder = local_folder(candidate.artifact_uri)
    if folder is None:
        return None
    try:
        manifest, _ = read_manifest(folder)
    except RejectedError:
        return None  # removed, for it has its verdict
    content = Content(
        kind=candidate.kind, artifact_uri=candidate.artifact_uri, content_sha256=manifest.content_sha256
    )
    return content, folder
