"""Shell: one lakeFS repository: each call in a thread with a deadline, its failure translated here alone.

Not the chain: what branches and tags mean is said in release/chain.py. Each call may be repeated: what
an earlier try did counts as done.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import uniform
from typing import IO, Any, TypeVar
from urllib.parse import quote

import urllib3
from lakefs.client import Client
from lakefs_sdk.exceptions import ApiException
from lakefs_sdk.models.branch_creation import BranchCreation
from lakefs_sdk.models.branch_protection_rule import BranchProtectionRule
from lakefs_sdk.models.commit_creation import CommitCreation
from lakefs_sdk.models.merge import Merge
from lakefs_sdk.models.path_list import PathList
from lakefs_sdk.models.repository_creation import RepositoryCreation
from lakefs_sdk.models.tag_creation import TagCreation

from schemas.artifact_fetch import LakefsAccess
from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError, words_of
from schemas.manifest import ManifestFile

T = TypeVar("T")

MAIN = "main"
NO_CHANGES = "no changes"
PAGE_ITEMS_MAX = 1_000
READ_BYTES = 1024 * 1024
POLL_S = 0.05
_BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _PRECONDITION = 400, 401, 403, 404, 409, 412


@dataclass(frozen=True, slots=True, kw_only=True)
class LakefsLimits:
    """How long lakeFS may take, and how often it is asked again."""

    connect_s_max: float = 5.0
    """Until it takes a connection."""
    call_s_max: float = 30.0
    """Of a call that carries no file."""
    upload_stall_s_max: float = 60.0
    """Of a file that does not move on."""
    uploads_at_once: int = 4
    """Files on their way."""
    tries_max: int = 3
    """While it does not answer."""
    retry_s: float = 0.5
    """Longest rest after the first failure; it doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit, as the log of a branch lists it."""

    commit_id: str
    """Its name."""
    parent_ids: tuple[str, ...]
    """The first is the earlier one of the branch."""
    metadata: Mapping[str, str]
    """As given when it was made."""
    created_at_s: int
    """Seconds UTC."""


class Repository:
    """Speaks to lakeFS about one repository."""

    def __init__(self, access: LakefsAccess, name: str, *, limits: LakefsLimits | None = None) -> None:
        self.name = name
        self.limits = limits or LakefsLimits()
        self._client = Client(  # type: ignore[no-untyped-call]
            host=access.endpoint,
            username=access.access_key_id,
            password=access.secret_access_key.get_secret_value(),
        ).sdk_client
        self._uploading = asyncio.Semaphore(self.limits.uploads_at_once)

    async def exists(self) -> bool:
        """Whether the repository is there."""
        try:
            await self.tip_of(MAIN)
        except RejectedError:
            return False
        return True

    async def create(self, storage_namespace: str) -> None:
        """Make the repository, or leave it as it is."""
        creation = RepositoryCreation.parse_obj(
            {"name": self.name, "storage_namespace": storage_namespace, "default_branch": MAIN}
        )
        await self._done_once(self._client.repositories_api.create_repository, creation)
        await self._until_made()

    async def _until_made(self) -> None:
        """Wait for whoever makes it at this very moment: its name is taken before it can be used."""
        for _ in range(int(self.limits.call_s_max / POLL_S)):
            if await self.exists():
                return
            await asyncio.sleep(POLL_S)
        raise UnavailableError(
            f"expected repository {self.name} within {self.limits.call_s_max:g} s, got its name taken and "
            "nothing behind it: see lakeFS's log",
            reason="lakefs_failed",
        )

    async def protect_main(self) -> None:
        """Let nothing but merges change `main`."""
        rules = [BranchProtectionRule(pattern=MAIN)]
        await self._call(self._client.repositories_api.set_branch_protection_rules, self.name, rules)

    async def tip_of(self, branch: str) -> str:
        """Give the commit that a branch points at. Raises RejectedError `not_found`."""
        found = await self._call(self._client.branches_api.get_branch, self.name, branch)
        return str(found.commit_id)

    async def create_branch(self, branch: str, commit_id: str) -> None:
        """Make a branch that begins at a commit."""
        creation = BranchCreation.parse_obj({"name": branch, "source": commit_id})
        await self._done_once(self._client.branches_api.create_branch, self.name, creation)

    async def branches(self, prefix: str) -> Mapping[str, str]:
        """Give the branches whose names begin so, and their commits."""
        rows = await self._listed(self._client.branches_api.list_branches, self.name, prefix=prefix)
        return {str(row.id): str(row.commit_id) for row in rows}

    async def delete_branch(self, branch: str) -> None:
        """Remove a branch and what is staged on it."""
        await self._call(self._client.branches_api.delete_branch, self.name, branch)

    async def put(self, branch: str, path: str, data: bytes) -> None:
        """Write an object."""
        await self._retried(lambda: asyncio.to_thread(self._upload, branch, path, data, len(data)))

    async def put_file(self, branch: str, path: str, folder: Path, file: ManifestFile) -> None:
        """Write a file of an artifact. Raises RejectedError when it is not what the manifest names."""
        async with self._uploading:
            await self._retried(lambda: asyncio.to_thread(self._upload_file, branch, path, folder, file))

    async def remove(self, branch: str, paths: list[str]) -> None:
        """Remove objects from a branch."""
        for first in range(0, len(paths), PAGE_ITEMS_MAX):
            listed = PathList(paths=paths[first : first + PAGE_ITEMS_MAX])
            await self._call(self._client.objects_api.delete_objects, self.name, branch, listed)

    async def paths(self, ref: str, prefix: str) -> tuple[str, ...]:
        """List the objects under a prefix."""
        rows = await self._listed(self._client.objects_api.list_objects, self.name, ref, prefix=prefix)
        return tuple(str(row.path) for row in rows)

    async def get(self, ref: str, path: str) -> bytes:
        """Read a small object. Raises RejectedError `not_found`."""
        return bytes(await self._call(self._client.objects_api.get_object, self.name, ref, path))

    async def commit(self, branch: str, message: str) -> str:
        """Commit what is staged on a branch; nothing new is no failure."""
        creation = CommitCreation.parse_obj({"message": message})
        try:
            made = await self._call(self._client.commits_api.commit, self.name, branch, creation)
        except ConflictError:
            return await self.tip_of(branch)
        return str(made.id)

    async def merge(self, branch: str, *, message: str, metadata: Mapping[str, str]) -> str:
        """Merge into `main` without a strategy. Raises ConflictError when both sides changed the same."""
        merge = Merge.parse_obj({"message": message, "metadata": dict(metadata)})
        into = self._client.refs_api.merge_into_branch
        done = await self._call(into, self.name, branch, MAIN, merge=merge)
        return str(done.reference)

    async def tag(self, name: str, commit_id: str) -> None:
        """Create a tag. Raises ConflictError when it exists."""
        creation = TagCreation.parse_obj({"id": name, "ref": commit_id})
        await self._call(self._client.tags_api.create_tag, self.name, creation)

    async def tags(self, prefix: str) -> Mapping[str, str]:
        """Give the tags whose names begin so, and their commits."""
        rows = await self._listed(self._client.tags_api.list_tags, self.name, prefix=prefix)
        return {str(row.id): str(row.commit_id) for row in rows}

    async def log(self, ref: str) -> tuple[Commit, ...]:
        """Give the commits of a branch, newest first, without those that were merged into it."""
        rows = await self._listed(self._client.refs_api.log_commits, self.name, ref, first_parent=True)
        return tuple(
            Commit(
                commit_id=row.id,
                parent_ids=tuple(row.parents),
                metadata=dict(row.metadata or {}),
                created_at_s=row.creation_date,
            )
            for row in rows
        )

    async def _listed(self, ask: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
        rows: list[Any] = []
        after = ""
        while True:
            page = await self._call(ask, *arguments, after=after, amount=PAGE_ITEMS_MAX, **options)
            rows.extend(page.results)
            if not page.pagination.has_more:
                return rows
            after = page.pagination.next_offset

    async def _done_once(self, act: Callable[..., Any], *arguments: Any) -> None:
        """Make something that may be there already."""
        try:
            await self._call(act, *arguments)
        except ConflictError:
            return

    async def _call(self, act: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        limit = (self.limits.connect_s_max, self.limits.call_s_max)

        def once() -> Any:
            with translated(f"{act.__name__} in {self.name}"):
                return act(*arguments, **options, _request_timeout=limit)

        return await self._retried(lambda: asyncio.to_thread(once))

    async def _retried(self, act: Callable[[], Awaitable[T]]) -> T:
        rest_s = self.limits.retry_s
        for _ in range(self.limits.tries_max - 1):
            try:
                return await act()
            except UnavailableError:
                await asyncio.sleep(uniform(rest_s / 2, rest_s))
                rest_s *= 2
        return await act()

    def _upload_file(self, branch: str, path: str, folder: Path, file: ManifestFile) -> None:
        try:
            with (folder / file.path).open("rb") as body:
                digested = _Digested(body)
                self._upload(branch, path, digested, file.size)
        except FileNotFoundError as error:
            raise RejectedError(
                f"expected {file.path} in {folder}, got no such file: export the artifact again",
                reason="missing_file",
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"expected to read {folder / file.path}, got {words_of(error)}: check the disk", reason="disk"
            ) from error
        if digested.hexdigest() != file.sha256:
            raise RejectedError(
                f"expected {file.path} with digest {file.sha256}, sent {digested.hexdigest()}: the file "
                "changed under our hands; export the artifact again",
                reason="digest_mismatch",
            )

    def _upload(self, branch: str, path: str, body: "bytes | _Digested", num_bytes: int) -> None:
        """Send one object as a stream; the generated client would read it whole."""
        api = self._client.objects_api.api_client
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(num_bytes)}
        api.update_params_for_auth(headers, None, ["basic_auth"], "", "POST", None)
        place = (
            f"/repositories/{quote(self.name)}/branches/{quote(branch)}/objects?path={quote(path, safe='')}"
        )
        stall_s = self.limits.upload_stall_s_max
        with translated(f"take {path} on {branch} of {self.name}"):
            answer = api.rest_client.pool_manager.request(
                "POST",
                api.configuration.host + place,
                headers=headers,
                body=body,
                timeout=urllib3.Timeout(connect=stall_s, read=stall_s),
                retries=False,
            )
            if answer.status >= _BAD_REQUEST:
                raise ApiException(status=answer.status, reason=answer.data.decode(errors="replace"))
        stored = json.loads(answer.data)["size_bytes"]
        if stored != num_bytes:
            raise UnavailableError(
                f"expected lakeFS to store {num_bytes} bytes of {path}, got {stored}: it is tried again",
                reason="short_upload",
            )


class _Digested:
    """A file whose bytes are digested while they are sent."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest = file, sha256()

    def read(self, num_bytes: int = -1) -> bytes:
        """Give the next bytes; more at once than is asked for, since a socket takes them all the same."""
        data = self._file.read(num_bytes if num_bytes < 0 else max(num_bytes, READ_BYTES))
        self._digest.update(data)
        return data

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what lakeFS's client raises into our three kinds; `what` completes "expected lakeFS to …"."""
    try:
        yield
    except ApiException as error:
        raise _sorted_out(error, what) from error
    except urllib3.exceptions.HTTPError as error:
        raise UnavailableError(
            f"expected lakeFS to {what}, got {type(error).__name__}: check that it runs and is reachable",
            reason="lakefs_failed",
        ) from error


def _sorted_out(error: ApiException, what: str) -> ReefError:
    text = str(error.body or error.reason).strip()[:300]
    said = f"expected lakeFS to {what}, got status {error.status} {text}"
    status = error.status
    if status in (_CONFLICT, _PRECONDITION) or (status == _BAD_REQUEST and NO_CHANGES in text):
        return ConflictError(f"{said}: somebody was first; look at the repository", reason="conflict")
    if status == _NOT_FOUND:
        return RejectedError(f"{said}: was it removed?", reason="not_found")
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        return UnavailableError(f"{said}: check lakeFS's keys and their policies", reason="lakefs_refused")
    if status == _BAD_REQUEST:
        return RejectedError(f"{said}: correct the request", reason="lakefs_refused")
    return UnavailableError(f"{said}: see lakeFS's log and its disk", reason="lakefs_failed")
