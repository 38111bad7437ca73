"""Shell: one short question over HTTP to a program on this machine or another. Not a client: no retries."""

import http.client
from base64 import b64encode
from urllib.parse import urlsplit

_PROBE_S_MAX = 2.0
_OK_BELOW = 300
_BROKEN_FROM = 500


def answers(url: str, *, basic_auth: tuple[str, str] | None = None) -> bool:
    """Whether a GET of the address succeeds within two seconds. Proxies are not asked."""
    try:
        return _status(url, basic_auth) < _OK_BELOW
    except (OSError, http.client.HTTPException):
        return False


def is_gone(url: str) -> bool:
    """Whether nobody listens there, or whoever does says that it is no use; one that is slow is not gone."""
    try:
        return _status(url, None) >= _BROKEN_FROM
    except TimeoutError:
        return False
    except (OSError, http.client.HTTPException):
        return True


def _status(url: str, basic_auth: tuple[str, str] | None) -> int:
    parts = urlsplit(url)
    assert parts.hostname is not None, url
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=_PROBE_S_MAX)
    headers = {}
    if basic_auth is not None:
        headers["Authorization"] = f"Basic {b64encode(':'.join(basic_auth).encode()).decode()}"
    try:
        connection.request("GET", parts.path or "/", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
