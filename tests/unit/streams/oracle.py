"""The rules of the session fold once more, as plainly as can be: everything kept, everything looked through.

Written against STREAMS and RULINGS, not against the fold: whole events instead of digests, lists instead of
indexes, tokens as tuples. Slow, and right if it reads right.
"""

from dataclasses import dataclass, field
from typing import Any

from schemas.events import (
    ClockTicked,
    ErasureRequested,
    FeedbackReported,
    InferenceCompleted,
    ScenarioConfigured,
)
from schemas.ids import Receipt, time_and_route_of
from schemas.packed import tokens
from streams.outputs import Timed

HOUR = 3_600_000_000


def made_us(receipt: Receipt) -> int:
    """When the call began, in microseconds."""
    return time_and_route_of(receipt)[0] * 1_000


@dataclass
class Rules:
    """What a test configures, in microseconds and counts."""

    join_us: int = 24 * HOUR
    orphan_us: int = 24 * HOUR
    dedup_us: int = 48 * HOUR
    credit: str = "turn"
    realign: int = 0
    sample_tokens_max: int = 2_048
    max_calls_per_route: int = 10_000


@dataclass
class Heard:
    """A call that was heard of."""

    event: InferenceCompleted
    offset: int
    arrived: int
    deadline: int
    status: str = "pending"
    is_reported: bool = False

    @property
    def made(self) -> int:
        return made_us(self.event.receipt)


@dataclass
class Said:
    """A report that was heard of."""

    event: FeedbackReported
    offset: int
    deadline: int
    status: str = "waiting"
    by: str = ""
    made: list[str] = field(default_factory=list)
    is_session: bool = False
    until: int = 0
    absent: set[Receipt] = field(default_factory=set)
    """Calls it names that have not come since, nor were there when it came."""


@dataclass
class Made:
    """An experience."""

    receipts: tuple[Receipt, ...]
    deadline: int


Fact = tuple[Any, ...]


class Oracle:
    """What must come of a history."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.now = 0
        self.calls: dict[Receipt, Heard] = {}
        self.reports: dict[str, Said] = {}
        self.made: dict[str, Made] = {}
        self.forgotten: set[str] = set()
        self.facts: list[Fact] = []
        self.num_made = 0

    def take(self, timed: Timed) -> None:
        self.now = max(self.now, timed.time_us)
        self.expire()
        match timed.event:
            case InferenceCompleted() as event:
                self.hear(event, timed.offset)
            case FeedbackReported() as event:
                self.listen(event, timed.offset)
            case ErasureRequested() as event:
                self.forget(event)
            case ScenarioConfigured() | ClockTicked():
                pass
            case _:
                raise AssertionError

    # ---- calls ----

    def hear(self, event: InferenceCompleted, offset: int) -> None:
        if event.receipt in self.calls:
            return
        if made_us(event.receipt) < self.now - self.rules.dedup_us:
            self.facts.append(("refused", offset, "too_old"))
            return
        call = Heard(event, offset, self.now, self.now + self.rules.join_us)
        self.calls[event.receipt] = call
        reason = self.against(event)
        if reason:
            self.settle(call, reason)
        self.give_to_waiting(call)
        for report in self.in_order():
            if call.status == "pending" and report.status == "applied" and self.covers(report, call):
                self.credit_late(report, call, is_quoted=False)
        self.make_room(event.route)

    def give_to_waiting(self, call: Heard) -> None:
        for report in self.in_order():
            if call.event.receipt not in report.absent:
                continue
            report.absent.discard(call.event.receipt)
            if report.status == "waiting":
                self.resolve(report)
            elif report.status == "applied":
                self.credit_late(report, call, is_quoted=True)

    def make_room(self, route: str) -> None:
        while True:
            waiting = [c for c in self.calls.values() if c.status == "pending" and c.event.route == route]
            if len(waiting) <= self.rules.max_calls_per_route:
                return
            self.settle(min(waiting, key=lambda each: each.offset), "buffer_overflow")

    def against(self, event: InferenceCompleted) -> str | None:
        if event.receipt in self.forgotten or (
            event.session and f"session {event.session}" in self.forgotten
        ):
            return "forgotten"
        found = ["opted_out"] if event.is_opted_out else []
        found += [str(event.outcome.value)] if event.outcome != "completed" else []
        found += [str(fault.value) for fault in sorted(event.capture_faults, reverse=True)]
        found += ["greedy"] if event.sampling.temperature == 0 else []
        found += ["sampling_truncated"] if event.sampling.top_p < 1 else []
        return found[0] if found else None

    def settle(self, call: Heard, reason: str) -> None:
        call.status = "settled"
        call.deadline = max(self.now + 1, self.forget_at(call))
        self.facts.append(("settled", call.event.receipt, reason))

    def forget_at(self, call: Heard) -> int:
        begun = min(call.made, call.arrived + self.rules.dedup_us)
        return max(call.arrived, begun) + self.rules.dedup_us + 1

    # ---- reports ----

    def in_order(self) -> list[Said]:
        return sorted(self.reports.values(), key=lambda report: report.offset)

    def listen(self, event: FeedbackReported, offset: int) -> None:
        known = self.reports.get(event.report_id)
        if known is not None:
            if content_of(known.event) != content_of(event):
                self.facts.append(("refused", offset, "report_conflict"))
            return
        absent = {name for name in event.references if name not in self.calls}
        report = Said(event, offset, self.now + self.rules.orphan_us, absent=absent)
        replacing = [
            other
            for other in self.in_order()
            if other.event.supersedes == event.report_id
            and other.event.route == event.route
            and other.event.report_id != event.supersedes
        ]
        if replacing:
            report.status, report.by = "superseded", replacing[-1].event.report_id
        self.reports[event.report_id] = report
        self.resolve(report)
        for other in sorted(self.reports.values(), key=lambda each: each.event.report_id):
            if other.event.supersedes == event.report_id:
                self.resolve(other)

    def target(self, report: Said) -> Said | None:
        found = self.reports.get(report.event.supersedes or "")
        return found if found is not None and found.event.route == report.event.route else None

    def resolve(self, report: Said) -> None:
        if report.status != "waiting":
            return
        has_calls = report.event.is_withdrawal or not report.absent
        if has_calls and (report.event.supersedes is None or self.target(report) is not None):
            self.apply(report)
            return
        for name in report.event.references:
            call = self.calls.get(name)
            if call is not None and call.status == "pending":
                longest = call.arrived + self.rules.join_us + self.rules.orphan_us
                call.deadline = max(call.deadline, min(report.deadline + 1, longest))

    def family(self, report: Said) -> list[Said]:
        """The reports it replaces, directly or not."""
        found: list[Said] = []
        names: list[str | None] = [report.event.supersedes]
        while names:
            other = self.reports.get(names.pop() or "")
            if other is None or other is report or other in found or other.event.route != report.event.route:
                continue
            found.append(other)
            names += [other.event.supersedes, other.by]
        return sorted(found, key=lambda each: each.offset)

    def apply(self, report: Said) -> None:
        family = self.family(report)
        later = [o for o in family if o.offset > report.offset and o.status in ("applied", "withdrawn")]
        if later:
            report.status, report.by = "superseded", later[-1].event.report_id
            return
        if report.event.is_withdrawal:
            for other in family:
                for name in other.made:
                    self.withdraw(name)
                other.status, other.by, other.made = "withdrawn", report.event.report_id, []
            report.status, report.deadline = "withdrawn", self.now + self.rules.dedup_us
            return
        quoted = [self.calls[name] for name in report.event.references if name in self.calls]
        statuses = {call.status for call in quoted}
        if report.event.supersedes is None and "credited" in statuses and "pending" not in statuses:
            del self.reports[report.event.report_id]
            self.facts.append(("refused", report.offset, "already_credited"))
            return
        report.status, report.deadline = "applied", self.now + self.rules.dedup_us
        report.is_session = self.rules.credit == "session"
        report.until = max((call.made for call in quoted), default=0)
        for other in family:
            for name in other.made:
                self.take_over(report, name)
            other.status, other.by, other.made = "superseded", report.event.report_id, []
        covered = {call.event.receipt: call for call in quoted if call.status == "pending"}
        if report.is_session:
            covered |= {
                call.event.receipt: call
                for call in self.calls.values()
                if call.status == "pending" and self.covers(report, call)
            }
        self.assemble(report, list(covered.values()), {call.event.receipt for call in quoted})

    def take_over(self, report: Said, name: str) -> None:
        made = self.made.get(name)
        if made is None:
            return
        is_quoted = set(made.receipts) & set(report.event.references)
        first = made_us(made.receipts[0])
        if is_quoted or (report.is_session and first <= report.until):
            report.made.append(name)
            made.deadline = self.now + self.rules.dedup_us
            self.facts.append(("revised", made.receipts, report.event.score))
        else:
            self.withdraw(name)

    def withdraw(self, name: str) -> None:
        made = self.made.pop(name, None)
        if made is not None:
            self.facts.append(("withdrawn", made.receipts))

    def covers(self, report: Said, call: Heard) -> bool:
        """Whether a report credits a call without naming it."""
        if not report.is_session or report.event.route != call.event.route or call.made > report.until:
            return False
        quoted = [self.calls[name] for name in report.event.references if name in self.calls]
        if call.event.session is not None or any(each.event.session is not None for each in quoted):
            return call.event.session is not None
        for last in quoted:
            # every call of the route that still waits competes to be the one before
            waiting = [
                other
                for other in self.calls.values()
                if other.status == "pending"
                and other.event.session is None
                and other.event.route == last.event.route
                and other is not last
                and other.made <= last.made
            ]
            if any(link[0] is call for link in self.links(last, waiting, set())):
                return True
        return False

    # ---- tokens ----

    def links(self, last: Heard, others: list[Heard], quoted: set[Receipt]) -> list[tuple[Heard, int, int]]:
        """The calls that `last` continues, nearest first: call, tokens kept of its answer, tokens lost."""
        prompt = ids(last.event.prompt_token_ids)
        fitting = []
        for other in others:
            opening, answer = ids(other.event.prompt_token_ids), ids(other.event.choices[0].token_ids)
            if prompt[: len(opening)] != opening:
                continue
            rendered = prompt[len(opening) :]
            kept = 0
            while kept < len(answer) and rendered[kept : kept + 1] == answer[kept : kept + 1]:
                kept += 1
            if kept > 0 and len(answer) - kept <= self.rules.realign:
                fitting.append((other, kept, len(answer) - kept))

        def nearest(link: tuple[Heard, int, int]) -> tuple[int, int, bool, int]:
            other, kept, lost = link
            end = len(ids(other.event.prompt_token_ids)) + kept
            return (-end, lost, other.event.receipt not in quoted, other.offset)

        chain: list[tuple[Heard, int, int]] = []
        bound = len(prompt)
        for other, kept, lost in sorted(fitting, key=nearest):
            begin = len(ids(other.event.prompt_token_ids))
            cut = max(0, begin + kept - bound)
            if kept - cut > 0 and lost + cut <= self.rules.realign:
                chain.append((other, kept - cut, lost + cut))
                bound = begin
        return chain

    def assemble(self, report: Said, covered: list[Heard], quoted: set[Receipt]) -> None:
        if report.event.score is None:
            for call in covered:
                call.is_reported = True
            return

        def leaf(call: Heard) -> tuple[int, bool, int]:
            return (-len(whole(call)), call.event.receipt not in quoted, call.offset)

        left = sorted(covered, key=leaf)
        too_long = []
        samples = []
        while left:
            last = left.pop(0)
            if len(whole(last)) > self.rules.sample_tokens_max:
                too_long.append(last)
                continue
            chain = self.links(last, left, quoted)
            left = [call for call in left if all(call is not link[0] for link in chain)]
            samples.append((last, chain))
        for call in too_long:
            self.settle(call, "too_long")
        for last, chain in samples:
            self.state_sample(report, last, chain)

    def state_sample(self, report: Said, last: Heard, chain: list[tuple[Heard, int, int]]) -> None:
        tokens_of = whole(last)
        mask = [0] * len(tokens_of)
        answer = ids(last.event.choices[0].token_ids)
        for call, kept, _ in [*chain, (last, len(answer), 0)]:
            begin = len(ids(call.event.prompt_token_ids))
            mask[begin : begin + kept] = [1] * kept
        calls = [link[0] for link in reversed(chain)] + [last]
        receipts = tuple(call.event.receipt for call in calls)
        lost = sum(link[2] for link in chain)
        self.facts.append(("sample", receipts, report.event.score, tokens_of, tuple(mask), lost))
        until = self.now + self.rules.dedup_us
        for call in calls:
            call.status = "credited"
            call.deadline = max(until, self.forget_at(call))
        name = str(self.num_made)
        self.num_made += 1
        self.made[name] = Made(receipts, until)
        report.made.append(name)

    def credit_late(self, report: Said, call: Heard, *, is_quoted: bool) -> None:
        if call.status == "pending":
            self.assemble(report, [call], {call.event.receipt} if is_quoted else set())

    # ---- time ----

    def expire(self) -> None:
        """End what is due in the order in which it fell due, whatever the tick that shows it."""
        everything: list[Said | Heard] = [*self.reports.values(), *self.calls.values()]
        due = [each for each in everything if each.deadline <= self.now]
        for each in sorted(due, key=lambda each: (each.deadline, each.offset)):
            if each.deadline > self.now:
                continue
            if isinstance(each, Said):
                self.expire_report(each)
            elif each.status == "pending":
                self.settle(each, "no_reward" if each.is_reported else "no_feedback")
            else:
                del self.calls[each.event.receipt]
        for name, made in list(self.made.items()):
            if made.deadline <= self.now:
                del self.made[name]

    def expire_report(self, report: Said) -> None:
        if self.reports.get(report.event.report_id) is not report:
            return
        if report.status != "waiting":
            del self.reports[report.event.report_id]
            return
        came = len(report.absent) < len(report.event.references) and not report.event.is_withdrawal
        if came or self.family(report):
            self.apply(report)
        else:
            del self.reports[report.event.report_id]
            self.facts.append(("refused", report.offset, "orphan_expired"))

    def forget(self, event: ErasureRequested) -> None:
        names = set(event.receipts)
        self.forgotten |= names | ({f"session {event.session}"} if event.session else set())
        for call in list(self.calls.values()):
            is_of_session = event.session is not None and call.event.session == event.session
            if call.status == "pending" and (is_of_session or call.event.receipt in names):
                self.settle(call, "forgotten")


def content_of(event: FeedbackReported) -> tuple[object, ...]:
    said = (event.score, event.feedback, event.metadata)
    return (event.references, event.supersedes, event.is_withdrawal, *said)


def ids(packed: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in tokens(packed))


def whole(call: Heard) -> tuple[int, ...]:
    return ids(call.event.prompt_token_ids) + ids(call.event.choices[0].token_ids)
