"""Shell: an operator's wish becomes a command in the log, and the answer is the release that it led to.

Not the decision: the release service takes commands one by one, and may refuse. A release names the command
that asked for it, so that each command is answered by its own release, however often the same is asked for.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.following import Following
from gateway.scenarios import Recorder
from gateway.views import Found, Views
from schemas.errors import ConflictError, RejectedError, UnavailableError
from schemas.events import PromoteCandidate, RollBackRelease
from schemas.ids import CandidateId, CommandId, ReleaseId, ScenarioName

WAIT_S_MAX = 60.0
"""How long an answer waits for the publication."""
RECHECK_S = 1.0
"""Longest rest between two looks at the chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an operator asks for."""

    scenario: ScenarioName
    """Whose chain."""
    command_id: CommandId | None
    """Makes it the same wish again; None: a new one."""
    expected_head_release_id: ReleaseId | None
    """Refused when the head is another."""


class ChainCommands:
    """Asks the release service for publications."""

    def __init__(
        self, *, views: Views, following: Following, recorder: Recorder, wait_s_max: float = WAIT_S_MAX
    ) -> None:
        self._views, self._following, self._recorder = views, following, recorder
        self._wait_s_max = wait_s_max

    async def roll_back(self, wish: Wish, target: ReleaseId) -> Found:
        """Publish an older release's content again. Raises RejectedError, ConflictError, UnavailableError."""
        command_id, asked_at_us = await self._begin(wish)
        rows = await self._views.releases(wish.scenario)
        if all(row["release_id"] != target for row in rows):
            raise RejectedError(
                f"expected a release of {wish.scenario!r}, got {target[:80]!r}: see its releases",
                reason="no_such_release",
            )
        command = RollBackRelease(
            command_id=command_id,
            scenario=wish.scenario,
            target_release_id=target,
            expected_head_release_id=wish.expected_head_release_id,
            requested_at_us=asked_at_us,
        )
        return await self._done(
            command,
            lambda row: row["operation"] == "rollback" and row["rollback_target_release_id"] == target,
        )

    async def promote(self, wish: Wish, candidate: CandidateId) -> Found:
        """Publish a held candidate, named by its id or by the commit where it waits.

        Raises RejectedError, ConflictError, UnavailableError.
        """
        command_id, asked_at_us = await self._begin(wish)
        known = await self._views.candidate(candidate)
        if known is not None and known["verdict"] != "held" and known["scenario"] == wish.scenario:
            raise ConflictError(
                f"expected a held candidate, got one that is {known['verdict']}: only held ones are promoted",
                reason="not_held",
            )
        command = PromoteCandidate(
            command_id=command_id,
            scenario=wish.scenario,
            candidate_id=candidate,
            expected_head_release_id=wish.expected_head_release_id,
            requested_at_us=asked_at_us,
        )
        return await self._done(command, lambda row: row["operation"] == "promote" and _holds(row, candidate))

    async def _begin(self, wish: Wish) -> tuple[CommandId, int]:
        """Name the command, and say when it was first asked for; refuse it if the head moved before that."""
        now_us = time.time_ns() // 1000
        if wish.command_id is not None:
            earlier = await self._views.command(wish.command_id)
            if earlier is not None:
                return wish.command_id, int(earlier["requested_at_us"])
        head = await self._views.head(wish.scenario)
        expected = wish.expected_head_release_id
        if expected is not None and (head is None or head["release_id"] != expected):
            raise ConflictError(
                f"expected the head to be {expected[:80]!r}, got another: see the releases, then ask again",
                reason="head_moved",
            )
        return wish.command_id or CommandId(f"cmd_{os.urandom(16).hex()}"), now_us

    async def _done(
        self, command: RollBackRelease | PromoteCandidate, answers: Callable[[Found], bool]
    ) -> Found:
        await self._recorder.append(command)
        try:
            async with asyncio.timeout(self._wait_s_max):
                while True:
                    moved = asyncio.ensure_future(self._following.moved())
                    try:
                        await asyncio.sleep(0)  # so that what comes from here on is not missed
                        if (row := await self._outcome(command, answers)) is not None:
                            return row
                        await asyncio.wait({moved}, timeout=RECHECK_S)
                    finally:
                        moved.cancel()
        except TimeoutError as error:
            raise UnavailableError(
                f"expected the release service to answer within {self._wait_s_max:g} s, got nothing: the "
                f"command {command.command_id} stays in the log; ask again with this command_id",
                reason="release_service_slow",
            ) from error

    async def _outcome(
        self, command: RollBackRelease | PromoteCandidate, answers: Callable[[Found], bool]
    ) -> Found | None:
        asked = await self._views.command(command.command_id)
        if asked is not None and asked["refusal"] is not None:
            refusal: Mapping[str, Any] = asked["refusal"]
            raise ConflictError(str(refusal["detail"]), reason=str(refusal["reason"]))
        rows = await self._views.releases(command.scenario)
        found = next((row for row in rows if row.get("command_id") == command.command_id), None)
        if found is not None and not answers(found):
            raise ConflictError(
                f"expected a new command_id, got {command.command_id!r}, which asked for something else: it "
                f"led to release {found['release_seq']}",
                reason="command_conflict",
            )
        return found


def _holds(row: Found, candidate: CandidateId) -> bool:
    """Whether a promotion published this candidate, or the content of this commit (RULINGS 37)."""
    return row["candidate_id"] == candidate or str(row["artifact_uri"]).endswith(f"/{candidate}/")
