"""Shell: a chain of releases as the log tells of it, and somebody who answers commands, for tests."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.blobs import open_blob_store
from schemas.bus import KafkaAccess, Place, Publisher, Reader
from schemas.codec import decode
from schemas.errors import ConflictError
from schemas.events import Event, Operation, PromoteCandidate, RollBackRelease
from schemas.ids import CandidateId, ReleaseId, Sha256
from schemas.records import rejection
from schemas.topics import COMMANDS, NUM_PARTITIONS_DEFAULT
from tests.builders import a_release_published
from tests.integration.keeping.rig import KeepingRig


def a_release(scenario: str, seq: int, **changes: Any) -> Any:
    named = {
        "scenario": scenario,
        "release_seq": seq,
        "release_id": ReleaseId(f"{scenario}-{seq}"),
        "content_sha256": Sha256(f"{seq:064x}"),
        "operation": Operation.TRAINING if seq else Operation.CREATION,
        "published_at_us": time.time_ns() // 1000,
    }
    return a_release_published(**{**named, **changes})


def publish(access: KafkaAccess, folder: Path, *events: Event) -> None:
    async def send() -> None:
        async with Publisher(access, blobs=open_blob_store(folder.as_uri())) as publisher:
            for event in events:
                await publisher.publish(event)

    asyncio.run(send())


def seen(rig: KeepingRig, scenario: str, num_releases: int) -> None:
    ends_s = time.monotonic() + 20
    while len(rig.run(rig.keeping.views.releases(scenario))) < num_releases:
        assert time.monotonic() < ends_s
        time.sleep(0.05)


def led_to(command: RollBackRelease | PromoteCandidate, release_seq: int) -> Any:
    """The release that a command asks for."""
    changes: dict[str, Any] = {"command_id": command.command_id}
    if isinstance(command, RollBackRelease):
        changes |= {"operation": Operation.ROLLBACK, "rollback_target_release_id": command.target_release_id}
    elif command.candidate_id.startswith("commit-"):
        uri = f"lakefs://reef-{command.scenario}/{command.candidate_id}/"
        candidate = CandidateId(f"candidate-{command.scenario}")
        changes |= {"operation": Operation.PROMOTE, "candidate_id": candidate, "artifact_uri": uri}
    else:
        changes |= {"operation": Operation.PROMOTE, "candidate_id": command.candidate_id}
    return a_release(command.scenario, release_seq, **changes)


@contextmanager
def a_release_service(
    access: KafkaAccess, folder: Path, scenario: str, *, refuses: bool, release_seq: int = 2
) -> Iterator[None]:
    """Answer the scenario's next command, as the release service will."""

    async def answer() -> None:
        blobs = open_blob_store(folder.as_uri())
        places = [Place(COMMANDS, n) for n in range(NUM_PARTITIONS_DEFAULT)]
        async with Reader(access) as reader, Publisher(access, blobs=blobs) as publisher:
            await reader.follow({place: bound.end for place, bound in (await reader.bounds(places)).items()})
            ready.set()
            async for record in reader:
                command = decode(record.value or b"")
                if (
                    not isinstance(command, RollBackRelease | PromoteCandidate)
                    or command.scenario != scenario
                ):
                    continue
                if refuses:
                    error = ConflictError("expected a restorable target", reason="not_restorable")
                    await publisher.publish(rejection(record, error, "release"))
                else:
                    await publisher.publish(led_to(command, release_seq))
                return

    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(answer()), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield
    thread.join(20)
    assert not thread.is_alive()
