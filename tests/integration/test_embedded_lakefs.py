"""The embedded lakeFS serves a chain, keeps it over a stop, and shows its keys to their owner only."""

import stat
from collections.abc import Callable
from pathlib import Path

import lakefs
import psutil
import pytest
from lakefs.client import Client

from deploy.embedded.lakefs import Lakefs, LakefsOptions
from deploy.ports import free_port
from tests.conftest import LakefsEndpoint

pytestmark = [pytest.mark.lakefs, pytest.mark.slow]


def _client(url: str, access_key_id: str, secret_access_key: str) -> Client:
    return Client(host=url, username=access_key_id, password=secret_access_key)  # type: ignore[no-untyped-call]  # lakefs


def test_the_shared_server_commits(lakefs: LakefsEndpoint) -> None:
    client = _client(lakefs.url, lakefs.access_key_id, lakefs.secret_access_key)
    assert _commit(client, "embedded-shared", b"one")


def test_a_commit_outlives_a_stop_and_the_keys_stay(
    cache_dir: Path, make_state_dir: Callable[[str], Path]
) -> None:
    state_dir = make_state_dir("lakefs")
    options = LakefsOptions(state_dir=state_dir, cache_dir=cache_dir, port=free_port())
    first = Lakefs(options)
    first.prepare()
    first.start()
    first.wait_ready()
    try:
        _commit(_client_of(first), "embedded-kept", b"one")
    finally:
        first.stop()
    second = Lakefs(options)
    second.start()
    try:
        second.wait_ready()
        repository = lakefs.repository("embedded-kept", client=_client_of(second))
        assert repository.branch("main").object("greeting").reader(mode="rb").read() == b"one"
    finally:
        second.stop()
    assert stat.S_IMODE(second.credentials_path.stat().st_mode) == 0o600


def test_the_secret_key_is_on_no_argument_list(lakefs: LakefsEndpoint) -> None:
    for process in psutil.process_iter(["cmdline"]):
        assert lakefs.secret_access_key not in " ".join(process.info["cmdline"] or ())


def _client_of(server: Lakefs) -> Client:
    keys = server.credentials
    return _client(server.url, keys.access_key_id, keys.secret_access_key.get_secret_value())


def _commit(client: Client, name: str, content: bytes) -> str:
    repository = lakefs.repository(name, client=client).create(storage_namespace=f"local://{name}")
    branch = repository.branch("main")
    branch.object("greeting").upload(content, mode="wb")
    return str(branch.commit("say hello").id)
