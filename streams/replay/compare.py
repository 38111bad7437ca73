"""Shell: both sides of a comparison, read: what the live topics hold of a range, and what the replay said."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from schemas.events import ExperienceAssembled, OutcomeSettled, TrainingSample
from schemas.topics import EXPERIENCE, OUTCOMES, TRAINING
from streams.replay.difference import Comparison, counted
from streams.replay.look import Looked
from streams.replay.plan import SESSIONS, Plan
from streams.replay.request import Deployment, Request
from streams.replay.said import all_said, said
from streams.replay.source import LogSource

DIFFERENCE = "difference.jsonl"


async def compared(request: Request, deployment: Deployment, plan: Plan, looked: Looked) -> Mapping[str, Any]:
    """Compare, write down each difference, and count them."""
    with Comparison(plan.work / "comparison.sqlite") as both:
        async with LogSource(deployment.access, deployment.blobs_url) as source:
            async for _, event in source.events(TRAINING, OUTCOMES, EXPERIENCE):
                match event:
                    case OutcomeSettled():
                        both.take("live", [event])
                    case TrainingSample() if looked.holds(event.experience):
                        both.take("live", [event])
                    case ExperienceAssembled() if looked.holds(event):
                        both.take_experiences("live", [event])
                    case _:
                        pass
        for topic in (TRAINING, OUTCOMES):
            told = all_said(plan, topic)
            both.take("replay", (e for e in told if isinstance(e, TrainingSample | OutcomeSettled)))
        made = said(plan, SESSIONS, EXPERIENCE)
        both.take_experiences("replay", (e for e in made if isinstance(e, ExperienceAssembled)))
        path = (request.out or plan.work) / DIFFERENCE
        with path.open("w") as file:
            for each in both.differing():
                file.write(json.dumps(asdict(each), sort_keys=True) + "\n")
        kinds = counted(both.differing())
        return {
            "samples": {"live": both.num_samples("live"), "replay": both.num_samples("replay")},
            **{what: kinds[what] for what in ("appears", "vanishes", "changes", "moves")},
            "experiences": both.experiences(),
        }
