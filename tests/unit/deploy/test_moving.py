"""What `reef rollback` and `reef promote` say in the end is what serves, also when somebody was quicker."""

from collections.abc import Mapping
from typing import Any

import pytest

from deploy.commands import chain


class Gateway:
    """Publishes release 2, and tells that another serves."""

    def __init__(self, serving_seq: int) -> None:
        self.serving_seq = serving_seq

    def post(self, path: str, body: Mapping[str, Any], *, answer_s_max: float) -> dict[str, Any]:
        return {"release_seq": 2, "release_id": "2" * 64, "kind": "checkpoint"}

    def get(self, path: str) -> dict[str, Any]:
        return {"scenarios": {"a": {"serving": {"release_seq": self.serving_seq}}}}


@pytest.mark.parametrize(
    ("serving_seq", "said"), [(2, "release 2 serves\n"), (3, "release 3 serves, newer than 2\n")]
)
def test_the_release_that_serves_is_named(
    capsys: pytest.CaptureFixture[str], serving_seq: int, said: str
) -> None:
    wish = chain._Wish({"release_id": "1" * 64}, None, "rolling a back")
    gateway: Any = Gateway(serving_seq)
    chain._move(gateway, "a", "rollback", wish, is_waiting=True, as_json=True)
    assert capsys.readouterr().err.endswith(said)
