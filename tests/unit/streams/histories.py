"""Random histories: conversations that branch, retry and compact; reports early, late, twice, corrected."""

import os
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from schemas.events import (
    CallOutcome,
    CaptureFault,
    ClockTicked,
    ErasureRequested,
    Event,
    FeedbackReported,
    InferenceCompleted,
)
from schemas.ids import Receipt, ReportId, Session, route_of_conversation, route_of_session
from schemas.packed import tokens
from schemas.topics import key_of
from streams.outputs import Timed
from tests.builders import a_sampling, an_erasure_requested
from tests.unit.streams.folding import SCENARIO, START_US, a_call, a_configuration, a_report
from tests.unit.streams.oracle import HOUR, Rules

NUM_HISTORIES = 1_000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 100
"""100 in the unit suite; `make test` asks for the thorough one."""

seeds = st.sampled_from(Random().sample(range(2**32), NUM_HISTORIES))
"""The histories of this run: all properties look at the same ones, so that each is folded once.

The seed of a failing one is printed as its example; `@example(seed=...)` brings it back.
"""

random_histories = settings(
    max_examples=NUM_HISTORIES,
    deadline=None,  # nothing depends on speed
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass
class History:
    """A log, and the rules it is folded by."""

    rules: Rules
    log: list[Timed]
    calls: list[InferenceCompleted] = field(default_factory=list)


@cache
def a_history(seed: int) -> History:
    """Make the history of a seed: always the same."""
    chance = Random(seed)
    rules = _rules(chance)
    calls: list[InferenceCompleted] = []
    events: list[Event] = []
    for number in range(chance.randint(1, 12)):
        call = _next_call(chance, calls, number)
        calls.append(call)
        events.append(call)
        while chance.random() < 0.45:
            events.append(_next_report(chance, calls, events))
    if chance.random() < 0.15:
        events.insert(chance.randrange(len(events) + 1), _an_erasure(chance, calls))
    events = _disturbed(chance, events)
    log = [_configured(rules)]
    now = START_US
    for event in events:
        now += chance.choice([0, 1, 1_000, HOUR, 5 * HOUR]) if chance.random() < 0.6 else 0
        if chance.random() < 0.1:
            log.append(_timed(ClockTicked(), len(log), now))
        log.append(_timed(event, len(log), now - chance.choice([0, 0, 0, 1_000])))
    for _ in range(5):
        now += 30 * HOUR
        log.append(_timed(ClockTicked(), len(log), now))
    return History(rules=rules, log=log, calls=calls)


def _rules(chance: Random) -> Rules:
    join = chance.choice([2, 10, 24])
    return Rules(
        join_us=join * HOUR,
        orphan_us=chance.choice([2, 10, 24]) * HOUR,
        dedup_us=chance.choice([2, 3]) * join * HOUR,
        credit=chance.choice(["turn", "session"]),
        realign=chance.choice([0, 0, 1, 2]),
        sample_tokens_max=chance.choice([12, 2_048]),
        max_calls_per_route=chance.choice([2, 10_000, 10_000]),
    )


def _configured(rules: Rules) -> Timed:
    streams = {
        "join_window_s": rules.join_us // 1_000_000,
        "orphan_window_s": rules.orphan_us // 1_000_000,
        "dedup_window_s": rules.dedup_us // 1_000_000,
        "max_calls_per_route": rules.max_calls_per_route,
    }
    event = a_configuration(
        streams=streams,
        credit=rules.credit,
        realign_threshold=rules.realign,
        sample_tokens_max=rules.sample_tokens_max,
    )
    return _timed(event, 0, START_US)


def _timed(event: Event, offset: int, time_us: int) -> Timed:
    return Timed(event=event, time_us=time_us, partition=0, offset=offset, key=key_of(event))


def _next_call(chance: Random, calls: list[InferenceCompleted], number: int) -> InferenceCompleted:
    """Continue, retry or begin a conversation; few tokens, so that strangers often say the same."""
    name = chance.choice(["a", "a", "b", None, None])
    session = None if name is None else Session(name)
    route = route_of_session(SCENARIO, session) if session else route_of_conversation(SCENARIO, "", "hello")
    earlier = [call for call in calls if call.route == route]
    prompt = [chance.randint(1, 2) for _ in range(chance.randint(1, 2))]
    if earlier and chance.random() < 0.75:
        last = chance.choice(earlier)
        prompt = [int(each) for each in tokens(last.prompt_token_ids)]
        if chance.random() < 0.8:
            answer = [int(each) for each in tokens(last.choices[0].token_ids)]
            if chance.random() < 0.25:
                answer[-1] = 9  # rendered otherwise
            prompt += answer + [chance.randint(1, 2) for _ in range(chance.randint(0, 2))]
    answer = [chance.randint(1, 3) for _ in range(chance.randint(1, 3))]
    changes = _fault(chance) if chance.random() < 0.15 else {}
    return a_call(number, prompt, answer, session=session, route=route, **changes)


def _fault(chance: Random) -> dict[str, Any]:
    return chance.choice(
        [
            {"is_opted_out": True},
            {"outcome": CallOutcome.CLIENT_ABORTED},
            {"outcome": CallOutcome.UPSTREAM_FAILED},
            {"capture_faults": (CaptureFault.TOKEN_GAP,)},
            {"capture_faults": (CaptureFault.NOT_TOKEN_EXACT,)},
            {"sampling": a_sampling(temperature=0.0)},
            {"sampling": a_sampling(top_p=0.9)},
        ]
    )


def _next_report(chance: Random, calls: list[InferenceCompleted], events: list[Event]) -> Event:
    route = chance.choice(calls).route
    known = [call.receipt for call in calls if call.route == route]
    references = chance.sample(known, min(len(known), chance.choice([1, 1, 1, 2, 3])))
    earlier = [event for event in events if isinstance(event, FeedbackReported)]
    supersedes: ReportId | None = None
    is_withdrawal = False
    if chance.random() < 0.3:
        of_route = [event.report_id for event in earlier if event.route == route]
        supersedes = chance.choice([*of_route, ReportId(f"f{chance.randint(0, 6)}")])
        is_withdrawal = chance.random() < 0.3
    name = f"f{len(earlier)}" if chance.random() < 0.9 else f"f{chance.randint(0, 6)}"
    if supersedes == name:
        supersedes, is_withdrawal = None, False
    return a_report(
        name,
        *references,
        route=route,
        score=chance.choice([None, 0.0, 1.0, 1.0, 0.5]),
        supersedes=supersedes,
        is_withdrawal=is_withdrawal,
    )


def _an_erasure(chance: Random, calls: list[InferenceCompleted]) -> ErasureRequested:
    if chance.random() < 0.5:
        return an_erasure_requested(scenario=SCENARIO, session=Session("a"), receipts=())
    receipts: tuple[Receipt, ...] = (chance.choice(calls).receipt,)
    return an_erasure_requested(scenario=SCENARIO, session=None, receipts=receipts)


def _disturbed(chance: Random, events: list[Event]) -> list[Event]:
    """Delay, repeat and lose."""
    placed: list[tuple[float, Event]] = []
    reach = chance.choice([0, 3, 100])
    for place, event in enumerate(events):
        if chance.random() < 0.07:
            continue
        copies = 1 + (chance.random() < 0.15)
        placed += [(place + chance.random() * reach, event) for _ in range(copies)]
    return [event for _, event in sorted(placed, key=lambda each: each[0])]


def at_offsets(log: list[Timed]) -> list[Timed]:
    """Number a log anew."""
    return [replace(timed, offset=offset) for offset, timed in enumerate(log)]
