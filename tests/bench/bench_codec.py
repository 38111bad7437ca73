"""Shell: how fast events become bytes and bytes events: `python -m tests.bench.bench_codec`.

One call of 2,000 prompt and 500 generated tokens with 8 KB of JSON, dataclass included, on one core. Rounds
of ours and of plain fastavro alternate, and each takes its best round by the processor's clock, so that what
else runs on the machine falls on both alike. Prints one JSON line.
"""

import io
import sys
import time
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import orjson

from schemas.codec import SCHEMAS, decode, encode, fingerprint
from schemas.events import InferenceCompleted
from schemas.packed import JsonBytes
from tests.builders import a_choice, an_inference, pack_logprobs, pack_tokens

NUM_PROMPT_TOKENS, NUM_COMPLETION_TOKENS, BODY_BYTES = 2_000, 500, 4_096
NUM_ROUNDS, CALLS_PER_ROUND = 60, 500
REACH_PER_S, BEYOND_PER_S = 60_000, 100_000
HEADER_BYTES = 10


def a_long_call() -> InferenceCompleted:
    """Build the call that is measured."""
    chance = np.random.default_rng(1)
    return an_inference(
        request=JsonBytes(b'"' + b"q" * (BODY_BYTES - 2) + b'"'),
        response=JsonBytes(b'"' + b"p" * (BODY_BYTES - 2) + b'"'),
        prompt_token_ids=pack_tokens(chance.integers(0, 49_152, NUM_PROMPT_TOKENS).tolist()),
        choices=(
            a_choice(
                token_ids=pack_tokens(chance.integers(0, 49_152, NUM_COMPLETION_TOKENS).tolist()),
                logprobs=pack_logprobs((-chance.exponential(1.0, NUM_COMPLETION_TOKENS)).tolist()),
            ),
        ),
    )


def cases() -> dict[str, Callable[[], object]]:
    """Name what is measured; `plain` is fastavro between bytes and dictionaries, without a dataclass."""
    event = a_long_call()
    data = encode(event)
    assert decode(data) == event
    schema = fastavro.parse_schema(orjson.loads(SCHEMAS[fingerprint(InferenceCompleted)]))
    body = data[HEADER_BYTES:]
    value: Any = fastavro.schemaless_reader(io.BytesIO(body), schema, return_record_name=True)
    return {
        "encode": lambda: encode(event),
        "decode": lambda: decode(data),
        "plain_encode": lambda: fastavro.schemaless_writer(io.BytesIO(), schema, value),
        "plain_decode": lambda: fastavro.schemaless_reader(io.BytesIO(body), schema),
    }


def best_rates(measured: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Give calls per second of each case's best round, the rounds taken in turn."""
    best_s = dict.fromkeys(measured, float("inf"))
    for _ in range(NUM_ROUNDS):
        for name, call in measured.items():
            started_s = time.process_time()
            for _ in range(CALLS_PER_ROUND):
                call()
            best_s[name] = min(best_s[name], time.process_time() - started_s)
    return {name: CALLS_PER_ROUND / seconds for name, seconds in best_s.items()}


def main() -> None:
    """Measure and print."""
    rates = best_rates(cases())
    result = {
        "what": "codec",
        "event_bytes": len(encode(a_long_call())),
        "encodes_per_s": round(rates["encode"]),
        "decodes_per_s": round(rates["decode"]),
        "encode_ratio_to_plain_fastavro": round(rates["encode"] / rates["plain_encode"], 2),
        "decode_ratio_to_plain_fastavro": round(rates["decode"] / rates["plain_decode"], 2),
        "is_reached": min(rates["encode"], rates["decode"]) >= REACH_PER_S,
        "is_beyond": min(rates["encode"], rates["decode"]) >= BEYOND_PER_S,
    }
    sys.stdout.write(orjson.dumps(result).decode() + "\n")


if __name__ == "__main__":
    main()
