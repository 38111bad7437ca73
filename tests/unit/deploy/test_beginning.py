"""What services do first: they refuse a spoilt contract early, and wait for Kafka in words."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import deploy
from deploy.ports import free_port

REPOSITORY = Path(deploy.__file__).parent.parent
PACKAGES = ("deploy", "gateway", "recipes", "release", "streams", "trainers")


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    """A copy of the project with one schema cut short."""
    for package in PACKAGES:
        (tmp_path / package).symlink_to(REPOSITORY / package)
    shutil.copytree(REPOSITORY / "schemas", tmp_path / "schemas")
    file = tmp_path / "schemas" / "avro" / "FeedbackReported.v1.avsc"
    file.write_text(file.read_text()[:100])
    return tmp_path


@pytest.mark.parametrize("service", ["gateway", "streams"])
def test_a_corrupt_schema_is_noticed_before_anything_is_opened(spoilt: Path, service: str) -> None:
    words = ("--reef.state_dir", str(spoilt / "state"), "--kafka.port", "1", "--reef.port", str(free_port()))
    done = subprocess.run(
        (sys.executable, "-m", "deploy.cli", service, *words),
        cwd=spoilt,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "expected an Avro schema" in done.stderr
    assert "FeedbackReported.v1.avsc" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (spoilt / "state" / service).exists()


def test_a_stream_worker_without_kafka_says_so_once_and_waits(tmp_path: Path) -> None:
    words = ("--reef.state_dir", str(tmp_path), "--kafka.port", str(free_port()))
    process = subprocess.Popen(
        (sys.executable, "-m", "deploy.cli", "streams", *words), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[1]
    assert "topics_not_ensured" in said
    assert "check that the brokers run and are reachable" in said
    assert [line.split()[3] for line in rest.splitlines()] == ["worker_stopped"]
    assert process.returncode == 0
