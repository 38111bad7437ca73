from gateway.errors import WrongMethodError, problem_of
from schemas.errors import UnavailableError


def test_a_wrong_method_is_told_which_there_are() -> None:
    problem = problem_of(WrongMethodError("PUT", "/v1/models", ["POST", "GET"]))
    assert (problem.status, problem.headers) == (405, {"allow": "GET, POST"})
    assert problem.message == "expected GET or POST on /v1/models, got PUT: use that"


def test_what_may_succeed_later_says_when() -> None:
    assert problem_of(UnavailableError("expected a, got b: c", reason="engine_down")).headers == {
        "retry-after": "1"
    }
