"""The session fold alone: events a second, how that grows with the state, and what a million calls weigh.

`python -m tests.bench.bench_fold` prints one JSON line a figure. Times are the processor's, best of several
rounds, since other programs share the machine.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from time import process_time

import psutil

from schemas.events import Event, InferenceCompleted
from schemas.ids import Session, route_of_session
from schemas.packed import BYTES_PER_TOKEN, Logprobs, TokenIds
from schemas.topics import key_of
from streams.outputs import Timed
from streams.session import step
from streams.session_state import SessionState
from tests.unit.streams.folding import SCENARIO, START_US, a_call, a_configuration, a_report, receipt_at
from tests.unit.streams.recipes import load

PROMPT_TOKENS, ANSWER_TOKENS = 436, 64
ROUND_EVENTS = 4_000
ROUNDS = 10
DRAIN_EVENTS = 1_000
MILLION = 1_000_000
GAP_US = 50_000


def main() -> None:
    """Run everything, or what is named; each memory in a process of its own."""
    runs = {
        "rate": rates,
        "memory-ten": lambda: memory("ten to a route", 10),
        "memory-one": lambda: memory("each on its own route", 1),
        "growth": growth,
    }
    wanted = sys.argv[1:]
    for name in wanted:
        runs[name]()
    for name in () if wanted else runs:
        subprocess.run([sys.executable, "-m", "tests.bench.bench_fold", name], check=True)


def a_state() -> SessionState:
    return SessionState(partition=0, num_partitions=1, load_recipe=load)


def template() -> InferenceCompleted:
    """A call of 500 tokens; its bytes are shared by all, as pages of a log would be."""
    prompt = TokenIds(bytes(range(256)) * (PROMPT_TOKENS * BYTES_PER_TOKEN // 256 + 1))
    prompt = TokenIds(prompt[: PROMPT_TOKENS * BYTES_PER_TOKEN])
    call = a_call(0)
    answer = replace(
        call.choices[0],
        token_ids=TokenIds(prompt[: ANSWER_TOKENS * BYTES_PER_TOKEN]),
        logprobs=Logprobs(bytes(ANSWER_TOKENS * BYTES_PER_TOKEN)),
    )
    return replace(call, prompt_token_ids=prompt, choices=(answer,))


def call_of(whole: InferenceCompleted, number: int, session: int) -> InferenceCompleted:
    name = Session(f"s{session}")
    route = route_of_session(SCENARIO, name)
    return replace(whole, receipt=receipt_at(number, route=route), route=route, session=name)


def placed(events: Sequence[Event], first_offset: int = 0) -> list[Timed]:
    return [
        Timed(event=event, time_us=START_US + at * GAP_US, partition=0, offset=at, key=key_of(event))
        for at, event in enumerate(events, first_offset)
    ]


def run(state: SessionState, log: Sequence[Timed], by_offset: dict[int, Timed]) -> float:
    began_s = process_time()
    for at, timed in enumerate(log):
        step(state, timed, by_offset)
        if at % DRAIN_EVENTS == 0:
            state.changes()
    state.changes()
    return process_time() - began_s


def rates() -> None:
    """Calls alone, and calls each followed by their report; entries are written as a runner writes them."""
    whole = template()
    calls = [call_of(whole, number, number // 10) for number in range(ROUND_EVENTS // 2)]
    pairs: list[Event] = []
    for number, call in enumerate(calls):
        pairs += [call, a_report(f"r{number}", call.receipt, route=call.route)]
    mixed: list[Event] = []
    for number, call in enumerate(calls):
        mixed += [call, a_report(f"m{number}", call.receipt, route=call.route)] if number % 5 == 0 else [call]
    for name, events in (("calls", calls), ("one report in five calls", mixed), ("one report a call", pairs)):
        log = placed([a_configuration(), *events])
        by_offset = {timed.offset: timed for timed in log}
        seconds = min(run(a_state(), log, by_offset) for _ in range(ROUNDS))
        say(f"fold, {name}", events_per_s=round(len(log) / seconds))


def memory(name: str, per_route: int) -> None:
    """A million pending calls."""
    whole = template()
    gc.collect()
    before = psutil.Process().memory_info().rss
    state = a_state()
    filled(state, whole, MILLION, per_route)
    gc.collect()
    megabytes = (psutil.Process().memory_info().rss - before) / 1e6
    say(f"a million pending calls, {name}", megabytes=round(megabytes), pending=state.num_pending())


def filled(state: SessionState, whole: InferenceCompleted, count: int, per_route: int) -> None:
    step(state, placed([a_configuration()])[0], {})
    for number in range(count):
        call = call_of(whole, number, number // per_route)
        offset = number + 1
        # within one window: nothing expires while the state grows
        timed = Timed(
            event=call, time_us=START_US + offset * 50, partition=0, offset=offset, key=key_of(call)
        )
        step(state, timed, {})
        if number % DRAIN_EVENTS == 0:
            state.changes()
    state.changes()


def growth() -> None:
    """What a call and its report cost when so many calls wait, ten to a session."""
    whole = template()
    for count in (10_000, 100_000, 1_000_000):
        state = a_state()
        filled(state, whole, count, 10)
        gc.collect()
        gc.freeze()
        seconds = min(one_round(state, whole, count + 1 + turn * ROUND_EVENTS) for turn in range(ROUNDS))
        say(
            f"fold beside {count} pending calls",
            microseconds_per_event=round(seconds / ROUND_EVENTS * 1e6, 1),
        )
        gc.unfreeze()
        del state


def one_round(state: SessionState, whole: InferenceCompleted, first: int) -> float:
    events: list[Event] = []
    for number in range(first, first + ROUND_EVENTS // 2):
        call = call_of(whole, number, number // 10)
        events += [call, a_report(f"g{number}", call.receipt, route=call.route)]
    log = [replace(timed, time_us=state.now_us + 1) for timed in placed(events, first)]
    return run(state, log, {timed.offset: timed for timed in log})


def say(what: str, **figures: float) -> None:
    sys.stdout.write(json.dumps({"bench": what, **figures}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
