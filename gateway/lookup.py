"""Shell: the state of one call: from the views, or from the outbox and the log's tail while they are behind.

A call is found from the moment of its answer: it is in the outbox, then in the log, then in the views, and is
looked for in that order of age reversed, and in the views again, so that it cannot slip through.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gateway.auth import Grant
from gateway.catalog import Catalog
from gateway.projection import call_facts, report_facts
from gateway.reporting import is_imported_call
from gateway.scenarios import Recorder
from gateway.views import Views
from schemas.bus import KafkaAccess, Place, Reader, Resolver, SchemaLog
from schemas.bus.resolver import BlobReader
from schemas.codec import decode
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError
from schemas.events import FeedbackReported, InferenceCompleted
from schemas.ids import RECEIPT_PREFIX, Receipt, ReportId, ScenarioName, route_of, verify_receipt
from schemas.partitions import partition_of
from schemas.topics import INTERACTIONS

Found = dict[str, Any]
GONE = frozenset({"blob_missing", "blob_mismatch", "log_truncated"})
"""Why a call that was found cannot be read back any more: it was forgotten, or is older than the log."""


class Lookup:
    """Finds calls."""

    def __init__(
        self,
        *,
        views: Views,
        recorder: Recorder,
        catalog: Catalog,
        access: KafkaAccess,
        blobs: BlobReader,
        receipt_keys: Sequence[bytes],
        num_partitions: int,
    ) -> None:
        self._views, self._recorder, self._catalog = views, recorder, catalog
        self._access, self._blobs = access, blobs
        self._receipt_keys, self._num_partitions = receipt_keys, num_partitions

    async def call(self, name: str, grant: Grant, *, scenario: str | None, with_body: bool) -> Found:
        """Give all that is known of a call, by its receipt or the id it was imported under.

        Raises RejectedError `no_such_call`, without saying whether it exists elsewhere, and what a scenario
        that is named and unknown or not the token's raises everywhere.
        """
        owner, receipt = await self._named(name, grant, scenario)
        found = await self._found(owner, receipt)
        if found is None:
            raise _no_such_call()
        outcome = await self._views.outcome(receipt) or {}
        answer = {
            "agent_record_id": receipt,
            "scenario": owner,
            "session": found["session"],
            "state": outcome.get("state", "pending"),
            "reason": outcome.get("reason"),
            "notes": outcome.get("notes", []),
            "experience_id": outcome.get("experience_id"),
            "batch_id": outcome.get("batch_id"),
            "candidate_id": outcome.get("candidate_id"),
            "release_id": outcome.get("release_id"),
            "served_by": await self._served_by(owner, found),
            "reports": await self._reports(receipt),
            "tags": found["tags"],
            "outcome": found["outcome"],
            "capture_faults": found["capture_faults"],
            "imported_id": found["imported_id"],
            "partition": found.get("partition"),
            "offset": found.get("offset"),
            "started_at": found["started_at_us"],
            "completed_at": found["completed_at_us"],
            "settled_at": outcome.get("settled_at_us"),
            "settled_place": outcome.get("place"),
        }
        return answer | ({"body": await self._body(receipt, found)} if with_body else {})

    async def _named(self, name: str, grant: Grant, scenario: str | None) -> tuple[ScenarioName, Receipt]:
        names = [self._catalog.resolve(scenario, grant).name] if scenario else list(self._catalog.names())
        for owner in names:
            if not grant.covers(owner):
                continue
            if not name.startswith(RECEIPT_PREFIX):
                taken = (await self._views.taken(owner, [ReportId(name)])).get(ReportId(name))
                if taken is not None and is_imported_call(owner, name, taken):
                    return owner, Receipt(taken.references[0])
                continue
            try:
                return owner, verify_receipt(name, owner, self._receipt_keys)
            except RejectedError:
                continue
        raise _no_such_call()

    async def _found(self, scenario: ScenarioName, receipt: Receipt) -> Found | None:
        if (known := await self._views.call(receipt)) is not None:
            return dict(known)
        if (event := await self._waiting(receipt)) is not None:
            return dict(call_facts(event))
        found: Found | None = None
        unread: UnavailableError | None = None
        try:
            found = await self._in_tail(receipt)
        except UnavailableError as error:
            unread = error
        if found is None and (known := await self._views.call(receipt)) is not None:
            return dict(known)  # the views read it while the tail behind them was looked at
        if unread is not None:
            raise unread
        return found

    async def _waiting(self, receipt: Receipt) -> InferenceCompleted | None:
        for value in await self._recorder.waiting(INTERACTIONS, route_of(receipt).encode()):
            event = decode(value)
            if isinstance(event, InferenceCompleted) and event.receipt == receipt:
                return event
        return None

    async def _in_tail(self, receipt: Receipt) -> Found | None:
        """Read what the views have not read yet of the one partition that may hold the call."""
        key = route_of(receipt).encode()
        place = Place(INTERACTIONS, partition_of(key, self._num_partitions))
        async with Reader(self._access) as reader, SchemaLog(self._access) as schema_log:
            resolver = Resolver(schema_log, self._blobs)
            first = (await self._views.positions()).get(place, await reader.log_start(*place))
            async for record in reader.read_to_end(*place, first):
                if record.key != key:
                    continue
                try:
                    event = await resolver.resolve(record)
                except RejectedError:
                    continue
                if isinstance(event, InferenceCompleted) and event.receipt == receipt:
                    here = {"partition": record.partition, "offset": record.offset}
                    return {**call_facts(event), **here}
        return None

    async def _reports(self, receipt: Receipt) -> list[Found]:
        reports = [dict(report) for report in await self._views.reports(receipt)]
        known = {report["agent_record_id"] for report in reports}
        for value in await self._recorder.waiting(INTERACTIONS, route_of(receipt).encode()):
            event = decode(value)
            if isinstance(event, FeedbackReported) and receipt in event.references:
                reports += [] if event.report_id in known else [{**report_facts(event), "place": None}]
        return reports

    async def _served_by(self, scenario: ScenarioName, found: Mapping[str, Any]) -> list[Found]:
        releases = {row["release_seq"]: row["release_id"] for row in await self._views.releases(scenario)}
        return [
            {
                "release_id": releases.get(seq, found["release_id"] if number == 0 else None),
                "release_seq": seq,
                "num_tokens": num_tokens,
            }
            for number, (seq, num_tokens) in enumerate(found["spans"])
        ]

    async def _body(self, receipt: Receipt, found: Mapping[str, Any]) -> Found | None:
        """Read the call itself back; None when the log no longer holds it, or not all of it."""
        event = await self._waiting(receipt) or await self._still_in_log(found)
        if event is None or event.receipt != receipt:
            return None
        return {"request": _parsed(event.request), "response": _parsed(event.response)}

    async def _still_in_log(self, found: Mapping[str, Any]) -> InferenceCompleted | None:
        try:
            return await self._from_log(found)
        except (RejectedError, ConflictError) as error:
            if error.reason not in GONE:
                raise
            return None

    async def _from_log(self, found: Mapping[str, Any]) -> InferenceCompleted | None:
        if "offset" not in found:
            return None
        partition, offset = found["partition"], found["offset"]
        async with Reader(self._access) as reader, SchemaLog(self._access) as schema_log:
            if offset < await reader.log_start(INTERACTIONS, partition):
                return None
            async for record in reader.read_range(INTERACTIONS, partition, offset, offset):
                event = await Resolver(schema_log, self._blobs).resolve(record)
                return event if isinstance(event, InferenceCompleted) else None
        return None


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")


def _no_such_call() -> ReefError:
    return RejectedError(
        "expected the receipt of a call of a scenario that this token may read, got another text: quote "
        "x-reef-agent-record-id of the answer",
        reason="no_such_call",
    )
