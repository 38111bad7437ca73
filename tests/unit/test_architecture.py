"""The habits of the tree that a machine can check: an unchecked habit is a wish."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "gateway", "streams", "trainers", "release", "recipes", "deploy")
READING_PATH_BEGINS = "schemas/__init__.py"
FIRST_WORDS = ("Pure: ", "Shell: ")
NEXT = re.compile(r"^Next: (\S+)$", re.MULTILINE)

IMPURE_MODULES = frozenset(
    "aiohttp aiokafka asyncio boto3 datetime fastapi faust httpx lakefs lakefs_sdk logging multiprocessing "
    "os psutil random requests secrets shutil signal socket sqlite3 structlog subprocess tempfile threading "
    "time typer urllib uuid uvicorn".split()
)
"""What a pure module never imports, itself or through another module of ours."""
UUID_NAMES_ALLOWED = frozenset({"UUID", "uuid5"})
"""Of uuid, what is deterministic."""
BROAD_EXCEPTS = {"streams/drive.py": 1}
"""Where `except Exception` may stand, beside composition roots (STYLE: one in the whole project)."""
COMPOSITION_ROOTS = ("deploy/", "gateway/app.py", "gateway/errors.py")


def modules() -> list[Path]:
    found = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in found if ".venv" not in path.parts]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstring_of(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def pure_modules() -> list[Path]:
    return [path for path in modules() if docstring_of(path).startswith("Pure: ")]


def imports_of(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each import statement as (module, names)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, tuple(alias.name for alias in node.names)


def ours(module: str) -> Path | None:
    """Give the file of a module of ours."""
    if module.split(".")[0] not in PACKAGES:
        return None
    base = ROOT / Path(*module.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.exists()), None)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_says_first_whether_it_is_pure(path: Path) -> None:
    assert docstring_of(path).startswith(FIRST_WORDS), f"{name_of(path)}: begin with Pure: or Shell:"


@pytest.mark.parametrize("path", pure_modules(), ids=name_of)
def test_a_pure_module_imports_no_clock_chance_or_outside(path: Path) -> None:
    for module, names in imports_of(path):
        if module == "uuid":
            assert set(names) <= UUID_NAMES_ALLOWED, f"{name_of(path)} imports {names} of uuid"
            continue
        assert module.split(".")[0] not in IMPURE_MODULES, f"{name_of(path)} is pure but imports {module}"


@pytest.mark.parametrize("path", pure_modules(), ids=name_of)
def test_a_pure_module_builds_on_pure_modules_only(path: Path) -> None:
    for module, _ in imports_of(path):
        target = ours(module)
        if target is not None:
            assert docstring_of(target).startswith("Pure: "), f"{name_of(path)} is pure but imports {module}"


def test_the_reading_path_leads_through_files_that_exist_and_never_turns_back() -> None:
    walked = [READING_PATH_BEGINS]
    while found := NEXT.search(docstring_of(ROOT / walked[-1])):
        following = found.group(1)
        assert (ROOT / following).exists(), f"{walked[-1]} leads to {following}, which is not there"
        if following == walked[0]:
            break
        assert following not in walked, f"the path turns back at {walked[-1]} to {following}"
        walked.append(following)
    on_path = {name_of(path) for path in modules() if NEXT.search(docstring_of(path))}
    assert on_path <= set(walked), f"nobody leads to {sorted(on_path - set(walked))}"
    assert len(walked) > 1


def broad_excepts(path: Path) -> int:
    broad = {"Exception", "BaseException"}
    count = 0
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            names = [node.type] if not isinstance(node.type, ast.Tuple) else list(node.type.elts)
            count += any(name is None or (isinstance(name, ast.Name) and name.id in broad) for name in names)
    return count


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_bugs_are_caught_in_one_place_only(path: Path) -> None:
    if not name_of(path).startswith(COMPOSITION_ROOTS):
        assert broad_excepts(path) <= BROAD_EXCEPTS.get(name_of(path), 0), (
            f"{name_of(path)} catches everything"
        )


def test_nothing_in_the_tree_names_a_machine_or_a_registry() -> None:
    names = (("pypi",), ("pythonhosted",), ("proxy", "golang"), ("repo1", "maven"))
    hosts = [".".join((*name, "org")) for name in names]
    for path in [*modules(), ROOT / "Makefile", ROOT / "README.md", ROOT / "requirements.lock"]:
        text = path.read_text()
        assert not [host for host in hosts if host in text], name_of(path)
        assert str(Path.home()) + "/" not in text, name_of(path)
