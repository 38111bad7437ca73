"""`reef release -c FILE` alone on a log and a lakeFS: release 0 is there, and it ends in order."""

import asyncio
import os
import signal
import sys

import pytest

from deploy.ports import free_port
from schemas.events import Operation
from tests.release_rig import ReleaseRig

pytestmark = [pytest.mark.kafka, pytest.mark.lakefs]

CONFIGURATION = """
reef:
  state_dir: {folder}/state
  scenarios: [{scenario}]
inference: {{model: {folder}/model, engine: "http://127.0.0.1:1"}}
kafka: {{port: {kafka}}}
lakefs: {{url: "{lakefs}"}}
observability: {{metrics_port: {port}}}
"""


def written(rig: ReleaseRig) -> str:
    text = CONFIGURATION.format(
        folder=rig.folder,
        scenario=rig.scenario,
        kafka=rig.settings.kafka.bootstrap.rpartition(":")[2],
        lakefs=rig.settings.lakefs.endpoint,
        port=free_port(),
    )
    path = rig.folder / "serve.yaml"
    path.write_text(text)
    return str(path)


async def test_the_command_makes_release_0_once_and_ends_at_a_signal(rig: ReleaseRig) -> None:
    keys = {
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": rig.settings.lakefs.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": rig.settings.lakefs.secret_access_key.get_secret_value(),
    }
    path = written(rig)
    for _ in range(2):
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "deploy.cli",
            "release",
            "-c",
            path,
            env={**os.environ, **keys},
            stderr=asyncio.subprocess.PIPE,
        )
        assert worker.stderr is not None
        try:
            while b"release_started" not in (line := await worker.stderr.readline()):
                assert line, "it ended before it began"
            first = await rig.until_seq(0)
        finally:
            if worker.returncode is None:
                worker.send_signal(signal.SIGTERM)
            _, said = await worker.communicate()
        assert (worker.returncode, b"Traceback" in said) == (0, False)
    assert first.operation is Operation.CREATION
    assert [release.release_id for release in await rig.releases()] == [first.release_id]
