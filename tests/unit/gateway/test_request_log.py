"""The canonical line is one line, whatever a client puts into its path."""

from io import BytesIO
from typing import Literal

import pytest

from gateway.request_log import StderrRequestLog


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_path_cannot_forge_a_line(log_format: Literal["console", "json"]) -> None:
    out = BytesIO()
    log = StderrRequestLog(log_format, out=out)
    log.answered({"path": "/x\n2026 request_answered status=200\x1b[31m\x00", "status": 404})
    written = out.getvalue()
    assert written.count(b"\n") == 1
    assert b"\x1b" not in written
    assert b"\x00" not in written
    assert b"status" in written
