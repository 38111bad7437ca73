"""Shell: a scenario's repository and its release 0, made when the scenario first starts, and never again."""

from collections.abc import Callable

from release.base_model import BaseModel
from release.chain import Artifact, Chain, Passed
from release.drafts import creation
from release.head import Evaluated
from release.publish import merge, prepare
from schemas.errors import ConflictError


async def establish(chain: Chain, base: BaseModel, now_us: Callable[[], int], passed: Passed) -> None:
    """Make repository and release 0, or leave them as they are. Whoever else does the same may be first."""
    await chain.create()
    if await chain.releases():
        return
    draft = creation(
        chain.scenario, base.manifest, artifact_uri=base.uri, tokenizer_digest=base.tokenizer_digest
    )
    artifact = Artifact(manifest=base.manifest, manifest_bytes=base.manifest.encode(), folder=None)
    try:
        await merge(chain, await prepare(chain, draft, artifact, (), passed), Evaluated(), now_us, passed)
    except ConflictError:
        assert await chain.releases(), "whoever was first made release 0"
