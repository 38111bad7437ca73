"""Shell: the way to lakeFS and its keys: from lakeFS's own variables, or from the embedded server's file."""

from collections.abc import Mapping

from pydantic import SecretStr

from deploy.embedded.lakefs import LakefsCredentials, lakefs_credentials_path
from schemas.artifact_fetch import LakefsAccess
from schemas.errors import RejectedError, UnavailableError
from schemas.settings import Settings

ACCESS_KEY = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
SECRET_KEY = "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"  # the variable's name


def find_lakefs_access(settings: Settings, environ: Mapping[str, str]) -> LakefsAccess:
    """Find address and keys. Raises RejectedError, or UnavailableError when an embedded server never ran."""
    endpoint = settings.lakefs.endpoint
    if environ.get(ACCESS_KEY) and environ.get(SECRET_KEY):
        secret = SecretStr(environ[SECRET_KEY])
        return LakefsAccess(endpoint=endpoint, access_key_id=environ[ACCESS_KEY], secret_access_key=secret)
    if not settings.lakefs.is_embedded:
        raise RejectedError(
            f"expected lakeFS's keys for {endpoint} in {ACCESS_KEY} and {SECRET_KEY}, got none: set both",
            reason="configuration",
        )
    path = lakefs_credentials_path(settings.reef.state_dir.absolute())
    if not path.exists():
        raise UnavailableError(
            f"expected the embedded lakeFS's keys in {path}, got none yet: run `reef stack up` first",
            reason="lakefs_not_started",
        )
    keys = LakefsCredentials.read_or_make(path)
    return LakefsAccess(
        endpoint=endpoint, access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key
    )
