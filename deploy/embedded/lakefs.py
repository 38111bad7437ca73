"""Shell: the lakeFS server on this machine, built from its Go module, on its local block store.

Keys are made here once and kept in the state folder, readable by their owner only. The build checks every
module against go.sum, which is in git.
"""

import json
import secrets
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from pydantic import SecretStr

from deploy.checks import ADVICE_GO
from deploy.command import require_program, run_command
from deploy.daemon import Daemon, Launch
from deploy.folders import made_once, make_folder, write_whole
from deploy.ports import HOST, require_free_port
from deploy.probe import answers
from schemas.errors import UnavailableError

LAKEFS_VERSION = "1.84.0"

_MODULE = Path(__file__).parent / "lakefs"
_MODULE_FILES = ("main.go", "go.mod", "go.sum")
_BUILD_S_MAX = 3_600.0
_READY_S_MAX = 60.0
_STOP_S_MAX = 10.0
_DIGEST_CHARS = 12
_TABLE_CACHE_BYTES = 64 * 1024 * 1024
"""Of commits' tables in memory; lakeFS itself would take 400 MB, bit by bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakefsCredentials:
    """The keys of the server's first user."""

    access_key_id: str
    """Names the key."""
    secret_access_key: SecretStr
    """Proves it."""

    @classmethod
    def read_or_make(cls, path: Path) -> Self:
        """Read the keys from the state folder, or make them. Raises UnavailableError."""
        if not path.exists():
            made = {"access_key_id": f"AKIAREEF{secrets.token_hex(6).upper()}"}
            made["secret_access_key"] = secrets.token_urlsafe(30)
            write_whole(path, json.dumps(made).encode(), mode=0o600)
        try:
            content = json.loads(path.read_bytes())
            secret = SecretStr(str(content["secret_access_key"]))
            return cls(access_key_id=str(content["access_key_id"]), secret_access_key=secret)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnavailableError(
                f"expected lakeFS's keys in {path}, got something else: put the file back from a backup, "
                "or remove reef.state_dir's folder lakefs and lose the chain",
                reason="bad_credentials_file",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LakefsOptions:
    """What a server of ours is told."""

    state_dir: Path
    """The state folder of the deployment; the server keeps to `lakefs/`, `logs/` and `run/` in it."""
    cache_dir: Path
    """Where the binary is."""
    port: int
    """Where it listens, on loopback."""


class Lakefs:
    """The embedded server."""

    def __init__(self, options: LakefsOptions) -> None:
        """Start nothing yet."""
        self._options = options
        self._folder = options.state_dir / "lakefs"
        self._binary_folder = lakefs_binary_path(options.cache_dir).parent
        self._credentials: LakefsCredentials | None = None
        self.daemon = Daemon(
            Launch(
                name="lakefs",
                folder=self._folder,
                log_path=options.state_dir / "logs" / "lakefs.log",
                record_path=options.state_dir / "run" / "lakefs.json",
                is_ready=self._answers,
                ready_s_max=_READY_S_MAX,
                stop_s_max=_STOP_S_MAX,
            )
        )

    @property
    def url(self) -> str:
        """Where clients begin."""
        return f"http://{HOST}:{self._options.port}"

    @property
    def credentials_path(self) -> Path:
        """Where the keys are, as JSON."""
        return lakefs_credentials_path(self._options.state_dir)

    @property
    def credentials(self) -> LakefsCredentials:
        """The keys; made at the first question."""
        if self._credentials is None:
            make_folder(self._folder, setting="reef.state_dir")
            self._credentials = LakefsCredentials.read_or_make(self.credentials_path)
        return self._credentials

    def prepare(self) -> None:
        """Build the server into the cache, once a version. Raises UnavailableError."""
        made_once(self._binary_folder, self._build, wait_s=_BUILD_S_MAX)

    def start(self) -> None:
        """Start the server on data of earlier starts, or on none. Raises UnavailableError."""
        self.daemon.clear()
        require_free_port(self._options.port, setting="lakefs.port")
        argv = (str(self._binary_folder / "lakefs"), "run", "--local-settings")
        self.daemon.start(argv, environ=self._environ())

    def wait_ready(self) -> None:
        """Wait until the server takes our keys. Raises UnavailableError."""
        self.daemon.wait_ready()

    def stop(self, *, stop_s_max: float | None = None) -> None:
        """Stop the server in order."""
        self.daemon.stop(stop_s_max=stop_s_max)

    def _environ(self) -> dict[str, str]:
        return {
            "HOME": str(self._folder.absolute()),
            "LAKEFS_LISTEN_ADDRESS": f"{HOST}:{self._options.port}",
            "LAKEFS_STATS_ENABLED": "false",
            "LAKEFS_SECURITY_CHECK_LATEST_VERSION": "false",
            "LAKEFS_EMAIL_SUBSCRIPTION_ENABLED": "false",
            "LAKEFS_LOGGING_LEVEL": "WARN",
            "LAKEFS_COMMITTED_SSTABLE_MEMORY_CACHE_SIZE_BYTES": str(_TABLE_CACHE_BYTES),
            "LAKEFS_INSTALLATION_USER_NAME": "reef",
            "LAKEFS_INSTALLATION_ACCESS_KEY_ID": self.credentials.access_key_id,
            "LAKEFS_INSTALLATION_SECRET_ACCESS_KEY": self.credentials.secret_access_key.get_secret_value(),
        }

    def _answers(self) -> bool:
        keys = self.credentials
        basic_auth = (keys.access_key_id, keys.secret_access_key.get_secret_value())
        return answers(f"{self.url}/api/v1/user", basic_auth=basic_auth)

    def _build(self, folder: Path) -> None:
        go = require_program("go", advice=ADVICE_GO)
        for name in _MODULE_FILES:
            shutil.copy(_MODULE / name, folder / name)
        run_command(
            (go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", "lakefs", "."),
            what=f"building lakeFS {LAKEFS_VERSION}",
            deadline_s=_BUILD_S_MAX,
            environ={"GOFLAGS": "", "CGO_ENABLED": "0"},
            folder=folder,
        )


def lakefs_credentials_path(state_dir: Path) -> Path:
    """Where an embedded server's keys are."""
    return state_dir / "lakefs" / "credentials.json"


def lakefs_binary_path(cache_dir: Path) -> Path:
    """Where the server is once built: named after all that decides its bytes."""
    content = b"".join((_MODULE / name).read_bytes() for name in _MODULE_FILES)
    digest = sha256(content).hexdigest()[:_DIGEST_CHARS]
    return cache_dir / f"lakefs-{LAKEFS_VERSION}-{digest}" / "lakefs"
