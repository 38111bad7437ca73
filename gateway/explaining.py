"""Shell: the life of one thing: from a call to the release that it helped to make, and back again.

Not the words: `reef explain` writes sentences. What the views no longer remember is missing, not made up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.auth import Grant
from gateway.catalog import Catalog
from gateway.log_search import LogSearch
from gateway.lookup import Lookup
from gateway.views import Views
from schemas.errors import RejectedError
from schemas.ids import RECEIPT_PREFIX, ReportId, ScenarioName, release_seq_named

CALLS_MAX = 1_000
"""Calls that one answer names."""
PREFIX_CHARS_MIN = 4
"""Of a release's id."""
CLOCKS_APART_US = 60_000_000
"""By how much two machines' clocks may differ."""
TRAINING_US_MAX = 6 * 60 * 60 * 1_000_000
"""How long before its training a batch was sealed at most, where the batch before it is not known."""

Found = dict[str, Any]


class Explaining:
    """Tells lives."""

    def __init__(self, *, views: Views, lookup: Lookup, catalog: Catalog, search: LogSearch) -> None:
        self._views, self._lookup, self._catalog, self._search = views, lookup, catalog, search

    async def explain(self, name: str, grant: Grant, *, scenario: str | None) -> Found:
        """Tell of a receipt, an imported call, a report, a batch, a candidate or a release.

        Raises RejectedError `no_such_call` or `nothing_so_named`, which do not say whether it is elsewhere.
        """
        if name.startswith(RECEIPT_PREFIX):
            return await self._call(name, grant, scenario)
        owners = [ScenarioName(scenario)] if scenario else list(self._catalog.names())
        for owner in [owner for owner in owners if grant.covers(owner)]:
            told = await self._told_in(owner, name, grant)
            if told is not None:
                return told
        raise RejectedError(
            f"expected a receipt, a report, a batch, a candidate or a release that this token may read, got "
            f"{name[:80]!r}: what is not settled yet has no batch, and what is old may be forgotten here",
            reason="nothing_so_named",
        )

    async def _told_in(self, scenario: ScenarioName, name: str, grant: Grant) -> Found | None:
        taken = (await self._views.taken(scenario, [ReportId(name)])).get(ReportId(name))
        rows = await self._views.report(scenario, name)
        if rows or (taken is not None and len(taken.references) != 1):
            references = [row["receipt"] for row in rows] or list(taken.references if taken else ())
            return await self._report(scenario, rows, references, name)
        if taken is not None:
            return await self._call(name, grant, scenario)
        batch = await self._views.batch_named(name)
        if batch is not None and batch["scenario"] == scenario:
            return await self._batch(scenario, batch["batch_id"])
        releases = await self._views.releases(scenario)
        release = _release_named(releases, name)
        return None if release is None else await self._release(scenario, release)

    async def _call(self, name: str, grant: Grant, scenario: str | None) -> Found:
        call = await self._lookup.call(name, grant, scenario=scenario, with_body=False)
        owner, since_us = call["scenario"], _since(call)
        experience = None
        if since_us is not None:
            experience = await self._search.experience(owner, call["agent_record_id"], since_us=since_us)
        batch = await self._batch_facts(owner, call["batch_id"]) if call["batch_id"] else None
        told = {"kind": "call", "scenario": owner, "call": call, "experience": experience, "batch": batch}
        return {**told, "releases": [] if batch is None else batch.pop("releases")}

    async def _report(
        self, scenario: ScenarioName, rows: Sequence[Mapping[str, Any]], references: list[str], name: str
    ) -> Found:
        parts = [{key: value for key, value in row.items() if key != "receipt"} for row in rows]
        places = [part.pop("place") for part in parts]
        report = parts[0] if parts else {"agent_record_id": name}
        known = [place for number, place in enumerate(places) if place and place not in places[:number]]
        return {
            "kind": "report",
            "scenario": scenario,
            "report": {**report, "places": known},
            "calls": [await self._call_facts(receipt) for receipt in references[:CALLS_MAX]],
        }

    async def _call_facts(self, receipt: str) -> Found:
        outcome = await self._views.outcome(receipt) or {"state": "pending", "reason": None, "notes": []}
        return {"agent_record_id": receipt, **outcome}

    async def _batch(self, scenario: ScenarioName, batch_id: str) -> Found:
        batch = await self._batch_facts(scenario, batch_id)
        releases = batch.pop("releases")
        calls = await self._views.batch_calls(batch_id, calls_max=CALLS_MAX)
        return {"kind": "batch", "scenario": scenario, "batch": batch, "releases": releases, "calls": calls}

    async def _batch_facts(self, scenario: str, batch_id: str) -> Found:
        training = await self._views.training(batch_id)
        failure = await self._views.failure(batch_id)
        verdict = None if training is None else await self._views.candidate(training["candidate_id"])
        return {
            "batch_id": batch_id,
            "seal": await self._seal(scenario, batch_id, training, failure),
            "training": training,
            "failure": failure,
            "verdict": verdict,
            "releases": [
                await self._with_swaps(row)
                for row in reversed(await self._views.releases(scenario))
                if batch_id in row["batch_ids"]
            ],
        }

    async def _seal(
        self,
        scenario: str,
        batch_id: str,
        training: Mapping[str, Any] | None,
        failure: Mapping[str, Any] | None,
    ) -> Found | None:
        """Look for the seal: after the training of the batch before it, since one is in flight at a time."""
        ended_us = training["trained_at_us"] if training else failure["failed_at_us"] if failure else None
        if ended_us is None:
            return None
        since_us = ended_us - TRAINING_US_MAX
        if training is not None and training["batch_seq"] == 0:
            since_us = 0
        elif training is not None:
            before = await self._views.training_numbered(scenario, training["batch_seq"] - 1)
            since_us = since_us if before is None else before["trained_at_us"] - CLOCKS_APART_US
        return await self._search.seal(scenario, batch_id, since_us=since_us)

    async def _release(self, scenario: ScenarioName, row: Mapping[str, Any]) -> Found:
        batches = []
        for batch_id in row["batch_ids"]:
            batch = await self._batch_facts(scenario, batch_id)
            batch.pop("releases")
            calls = await self._views.batch_calls(batch_id, calls_max=CALLS_MAX)
            batches.append({**batch, "calls": calls})
        release = await self._with_swaps(row)
        return {"kind": "release", "scenario": scenario, "release": release, "batches": batches}

    async def _with_swaps(self, row: Mapping[str, Any]) -> Found:
        return {**row, "swaps": await self._views.swaps(row["release_id"])}


def _since(call: Mapping[str, Any]) -> int | None:
    """Say from when on its experience may stand in the log; None while no report came."""
    reported_us = [report["reported_at_us"] for report in call["reports"] if not report["is_withdrawal"]]
    if not reported_us:
        return None
    return int(max(min(reported_us), call["completed_at"])) - CLOCKS_APART_US


def _release_named(rows: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    seq = release_seq_named(name)
    if seq is not None:
        return next((row for row in rows if row["release_seq"] == seq), None)
    found = [row for row in rows if len(name) >= PREFIX_CHARS_MIN and row["release_id"].startswith(name)]
    exact = [row for row in rows if row["release_id"] == name]
    return (exact or found)[0] if len(exact or found) == 1 else None
