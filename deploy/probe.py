"""Shell: one short question over HTTP to a program on this machine or another. Not a client: no retries."""

import http.client
from base64 import b64encode
from urllib.parse import urlsplit

_PROBE_S_MAX = 2.0
_OK_BELOW = 300


def answers(url: str, *, basic_auth: tuple[str, str] | None = None) -> bool:
    """Whether a GET of the address succeeds within two seconds. Proxies are not asked."""
    parts = urlsplit(url)
    assert parts.hostname is not None, url
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=_PROBE_S_MAX)
    headers = {}
    if basic_auth is not None:
        headers["Authorization"] = f"Basic {b64encode(':'.join(basic_auth).encode()).decode()}"
    try:
        connection.request("GET", parts.path or "/", headers=headers)
        return connection.getresponse().status < _OK_BELOW
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
