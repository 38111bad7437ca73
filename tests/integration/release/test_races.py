"""Two publishers on one parent: one head, and the other's work is there to be looked at."""

import asyncio
from time import time_ns

import pytest

from release.chain import Artifact, Chain, Prepared
from release.creation import establish
from release.drafts import training
from release.head import Evaluated, Release
from release.inspection import folder_of, inspect
from release.memory import Memory
from release.publish import merge, prepare
from release.reconcile import complete
from schemas.artifact_fetch import FetchedArtifacts
from schemas.errors import ConflictError, UnavailableError
from schemas.events import CandidateTrained, Event, ReleasePublished
from schemas.ids import ReleaseId
from tests.release_rig import WEIGHTS, ReleaseRig

pytestmark = pytest.mark.lakefs

NUM_RACES = 50


class Told:
    """Keeps what is announced."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def announce(self, event: Event) -> None:
        self.events.append(event)


def now_us() -> int:
    return time_ns() // 1000


def nothing(point: str) -> None:
    pass


async def brought(chain: Chain, candidate: CandidateTrained, releases: tuple[Release, ...]) -> Prepared:
    facts = inspect(folder_of(candidate.artifact_uri))
    assert facts.manifest is not None
    artifact = Artifact(
        manifest=facts.manifest,
        manifest_bytes=facts.manifest_bytes,
        folder=folder_of(candidate.artifact_uri),
    )
    draft = training(candidate, facts.manifest, releases[-1])
    return await prepare(chain, draft, artifact, releases, nothing)


async def run_race(chains: tuple[Chain, Chain], rig: ReleaseRig, number: int) -> tuple[Release, Prepared]:
    """Let two publishers merge at once on the same head; give the winner's release and the loser's branch."""
    releases = await chains[0].releases()
    base = releases[-1].release_id
    candidates = [rig.candidate(2 * number + who, base) for who in (0, 1)]
    pairs = list(zip(chains, candidates, strict=True))
    prepared = await asyncio.gather(*[brought(chain, one, releases) for chain, one in pairs])
    merges = [
        merge(chain, one, Evaluated(), now_us, nothing) for chain, one in zip(chains, prepared, strict=True)
    ]
    outcomes = await asyncio.gather(*merges, return_exceptions=True)
    won = [outcome for outcome in outcomes if isinstance(outcome, Release)]
    lost = [
        one for one, outcome in zip(prepared, outcomes, strict=True) if isinstance(outcome, ConflictError)
    ]
    assert (len(won), len(lost)) == (1, 1), outcomes
    return won[0], lost[0]


@pytest.mark.slow
async def test_of_two_publishers_one_wins_each_number_and_the_losers_can_be_inspected(
    offline_rig: ReleaseRig,
) -> None:
    rig = offline_rig
    chains = (rig.chain, rig.chain)
    await asyncio.gather(*[establish(chain, rig.settings.base, now_us, nothing) for chain in chains])
    races = [await run_race(chains, rig, number) for number in range(NUM_RACES)]
    told = Told()
    releases = await complete(rig.chain, Memory(), told, nothing)
    assert [release.seq for release in releases] == list(range(NUM_RACES + 1))
    assert [release.release_id for release in releases[1:]] == [won.release_id for won, _ in races]
    published = [event for event in told.events if isinstance(event, ReleasePublished)]
    assert [event.release_seq for event in published] == list(range(NUM_RACES + 1))
    assert len(await rig.chain.tags()) == NUM_RACES + 1
    fetched = FetchedArtifacts(rig.folder / "fetched", rig.settings.lakefs)
    for won, lost in races[::7]:
        assert lost.head.content_sha256 != won.head.content_sha256
        uri = f"lakefs://reef-{rig.scenario}/{lost.commit_id}/"
        assert (fetched.fetch(uri, lost.head.content_sha256) / WEIGHTS).is_file()


async def test_of_two_who_create_a_scenario_one_makes_release_0(offline_rig: ReleaseRig) -> None:
    chains = [offline_rig.chain for _ in range(4)]
    made = await asyncio.gather(
        *[establish(chain, offline_rig.settings.base, now_us, nothing) for chain in chains]
    )
    assert len([one for one in made if one is not None]) == 1
    assert [release.seq for release in await offline_rig.releases()] == [0]


async def test_a_merge_whose_answer_was_lost_is_found_and_not_repeated(offline_rig: ReleaseRig) -> None:
    chain = offline_rig.chain
    await establish(chain, offline_rig.settings.base, now_us, nothing)
    releases = await chain.releases()
    prepared = await brought(chain, offline_rig.candidate(1, releases[0].release_id), releases)
    first = await chain.merge(prepared, Evaluated(metrics={"score": 0.5}), now_us=7)
    again = await merge(offline_rig.chain, prepared, Evaluated(), now_us, nothing)
    assert again == first
    assert again.published_at_us == 7


async def test_main_takes_nothing_but_merges(offline_rig: ReleaseRig) -> None:
    chain = offline_rig.chain
    await establish(chain, offline_rig.settings.base, now_us, nothing)
    releases = await chain.releases()
    with pytest.raises(UnavailableError, match="protected"):
        await chain.commit("main", releases[0].head)


async def test_a_tag_is_never_moved(offline_rig: ReleaseRig) -> None:
    chain = offline_rig.chain
    await establish(chain, offline_rig.settings.base, now_us, nothing)
    releases = await chain.releases()
    await chain.tag(releases[0])
    root = ReleaseId(await chain.root())
    forged = Release(release_id=root, head=releases[0].head, published_at_us=0)
    with pytest.raises(ConflictError, match="never moved"):
        await chain.tag(forged)
