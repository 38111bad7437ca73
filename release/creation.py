"""Shell: a scenario's repository and its release 0, made when the scenario first starts, and never again."""

from collections.abc import Callable

from release.base_model import BaseModel
from release.chain import Artifact, Chain
from release.drafts import creation
from release.head import Evaluated, Release
from release.publish import Passed, merge, prepare
from schemas.errors import ConflictError


async def establish(
    chain: Chain, base: BaseModel, now_us: Callable[[], int], passed: Passed
) -> Release | None:
    """Make repository and release 0, or leave them as they are. Whoever else does the same may be first.

    Gives the release if this call made it.
    """
    await chain.create()
    if await chain.releases():
        return None
    draft = creation(
        chain.scenario, base.manifest, artifact_uri=base.uri, tokenizer_digest=base.tokenizer_digest
    )
    artifact = Artifact(manifest=base.manifest, manifest_bytes=base.manifest.encode(), folder=None)
    try:
        prepared = await prepare(chain, draft, artifact, (), passed)
        return await merge(chain, prepared, Evaluated(), now_us, passed)
    except ConflictError:
        assert await chain.releases(), "whoever was first made release 0"
        return None
