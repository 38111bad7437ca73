"""The contract: dataclasses and `.avsc` files agree, old versions stay readable, golden bytes stay."""

import ast
import copy
import dataclasses
import enum
import inspect
import json
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import avro.schema
import pytest
from fastavro import parse_schema

import schemas
from schemas import packed
from schemas.codec import SCHEMAS, decode, encode, fingerprint
from schemas.contract import fingerprint_of, newest_versions, parsed, read_version, schema_versions
from schemas.errors import RejectedError
from schemas.events import EVENT_TYPES, Event
from schemas.forms import record_form
from schemas.topics import TOPICS
from tests.evolution import breaks_between
from tests.golden import differences

README = Path(schemas.__file__).with_name("README.md")
GOLDEN = Path(__file__).parents[1] / "golden"
AVRO_OF = {str: "string", bool: "boolean", int: "long", float: "double", bytes: "bytes"}
PACKED = {packed.TokenIds, packed.Logprobs, packed.Temperatures, packed.Mask}

each_type = pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
each_version = pytest.mark.parametrize(
    "version", schema_versions(), ids=lambda version: f"{version.event}.v{version.version}"
)


def schema_of(event_type: type[Event]) -> dict[str, Any]:
    return parsed(newest_versions()[event_type.__name__].json)


def wire_type(hint: Any) -> Any:  # noqa: PLR0911 -- one return a kind of hint
    """State what stands in the `.avsc` for a type hint; named types by name only."""
    if hint in PACKED:
        return ["Packed", "BlobRef"]
    if hint in (packed.JsonBytes, packed.OriginalBytes):
        return ["bytes", "BlobRef"]
    if hasattr(hint, "__supertype__"):
        return wire_type(hint.__supertype__)
    if get_origin(hint) in (Union, types.UnionType):
        inner = wire_type(next(part for part in get_args(hint) if part is not type(None)))
        return ["null", *inner] if isinstance(inner, list) else ["null", inner]
    if get_origin(hint) is tuple:
        return {"array": wire_type(get_args(hint)[0])}
    if get_origin(hint) is Mapping:
        return {"map": wire_type(get_args(hint)[1])}
    return AVRO_OF.get(hint) or hint.__name__


def named_type(schema: Any) -> Any:
    match schema:
        case list():
            return [named_type(branch) for branch in schema]
        case {"type": "array", "items": items}:
            return {"array": named_type(items)}
        case {"type": "map", "values": values}:
            return {"map": named_type(values)}
        case {"name": name}:
            return name
        case _:
            return schema


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for part in schema:
            yield from parts_of(part)
    if isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from parts_of(part)


def records_within(kind: Any) -> Iterator[type[Any]]:
    """Walk a dataclass, the records and the enums within."""
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum)):
        yield kind
        if dataclasses.is_dataclass(kind):
            for hint in get_type_hints(kind).values():
                yield from records_within(hint)
    for part in get_args(kind):
        yield from records_within(part)


@each_type
def test_a_schema_has_the_fields_of_its_dataclass_in_order_with_their_types(event_type: type[Event]) -> None:
    named = {
        part["name"]: part for part in parts_of(schema_of(event_type)) if "type" in part and "name" in part
    }
    for kind in records_within(event_type):
        if issubclass(kind, enum.Enum):
            assert named[kind.__name__]["symbols"] == [member.value for member in kind]
            assert named[kind.__name__]["default"] == "unspecified"
            continue
        hints = get_type_hints(kind)
        expected = [(field.name, wire_type(hints[field.name])) for field in dataclasses.fields(kind)]
        actual = [(field["name"], named_type(field["type"])) for field in named[kind.__name__]["fields"]]
        assert actual == expected


@each_type
def test_every_type_field_and_symbol_is_documented_on_both_sides(event_type: type[Event]) -> None:
    for part in parts_of(schema_of(event_type)):
        if "name" in part:
            assert part["doc"].strip(), part["name"]
    for kind in records_within(event_type):
        body = ast.parse(inspect.getsource(kind)).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in zip(body.body, [*body.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign | ast.Assign):
                assert isinstance(following, ast.Expr), f"{kind.__name__}: {ast.unparse(statement)}"


@each_type
def test_what_may_be_null_is_null_by_default(event_type: type[Event]) -> None:
    for record in parts_of(schema_of(event_type)):
        for field in record.get("fields", []):
            is_nullable = isinstance(field["type"], list) and field["type"][0] == "null"
            assert ("default" in field) == is_nullable
            assert field.get("default") is None


@each_version
def test_a_schema_is_complete_in_itself_and_both_libraries_give_its_fingerprint(version: Any) -> None:
    schema = json.loads(version.json)
    parse_schema(copy.deepcopy(schema))
    assert avro.schema.parse(version.json).fingerprint("CRC-64-AVRO") == version.fingerprint
    assert schema["name"] == version.event
    assert schema["namespace"] == "reef"


@pytest.mark.parametrize(
    ("schema", "published"),
    [
        ('"int"', 0x7275D51A3F395C8F),
        ('"string"', 0x8F014872634503C7),
        ('"null"', 0x63DD24E7CC258F8A),
    ],
)
def test_fingerprints_are_those_of_the_avro_project(schema: str, published: int) -> None:
    assert fingerprint_of(json.loads(schema)) == published.to_bytes(8, "little")


def test_every_event_type_has_one_schema_and_every_schema_an_event_type() -> None:
    assert set(newest_versions()) == {event_type.__name__ for event_type in EVENT_TYPES}
    assert len({fingerprint(event_type) for event_type in EVENT_TYPES}) == len(EVENT_TYPES)
    assert {fingerprint(event_type) for event_type in EVENT_TYPES} <= set(SCHEMAS)
    assert len(SCHEMAS) == len(schema_versions())


@each_version
def test_golden_bytes_are_read_as_when_they_were_written(version: Any) -> None:
    golden = json.loads((GOLDEN / f"{version.event}.v{version.version}.json").read_text("utf-8"))
    data = bytes.fromhex(golden["bytes"])
    event = decode(data)
    assert data[2:10] == version.fingerprint
    assert type(event).__name__ == version.event
    assert differences(event, golden["event"]) == []
    if version == newest_versions()[version.event]:
        assert encode(event) == data


def test_there_is_no_golden_file_without_its_schema() -> None:
    versions = {f"{version.event}.v{version.version}.json" for version in schema_versions()}
    assert {path.name for path in GOLDEN.glob("*.json")} == versions


@each_type
def test_all_versions_of_a_schema_read_one_another(event_type: type[Event]) -> None:
    versions = [json.loads(v.json) for v in schema_versions() if v.event == event_type.__name__]
    numbers = [v.version for v in schema_versions() if v.event == event_type.__name__]
    assert numbers == list(range(1, len(numbers) + 1))
    assert breaks_between(versions) == []


def changed(change: Callable[[dict[str, Any]], object]) -> list[dict[str, Any]]:
    """Give a version of FeedbackReported, and a next one with this change."""
    old = json.loads(newest_versions()["FeedbackReported"].json)
    new = copy.deepcopy(old)
    change(new)
    return [old, new]


def field_of(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return next(field for field in schema["fields"] if field["name"] == name)


LOCALE = {"name": "locale", "doc": "Of the text.", "type": ["null", "string"]}
BREAKS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a field without a default is added": lambda new: new["fields"].append(LOCALE),
    "a field is removed": lambda new: new["fields"].remove(field_of(new, "part")),
    "a type is changed": lambda new: field_of(new, "part").update(type="string"),
    "a type is narrowed": lambda new: field_of(new, "part").update(type="int"),
    "a branch is removed": lambda new: field_of(new, "score").update(type="double", default=0.0),
    "a symbol is removed": lambda new: field_of(new, "source")["type"]["symbols"].remove("kafka"),
    "symbols change places": lambda new: field_of(new, "source")["type"]["symbols"].reverse(),
    "a field is renamed": lambda new: field_of(new, "part").update(name="piece"),
    "only a doc is changed": lambda new: field_of(new, "part").update(doc="Another."),
    "only a default is changed": lambda new: field_of(new, "part").update(default=0),
}


@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS.keys())
def test_a_breaking_change_is_found(change: Callable[[dict[str, Any]], object]) -> None:
    assert breaks_between(changed(change)) != []


GROWTH: dict[str, Callable[[dict[str, Any]], object]] = {
    "a field with a default": lambda new: new["fields"].append(LOCALE | {"default": None}),
    "a symbol at the end": lambda new: field_of(new, "source")["type"]["symbols"].append("mail"),
}


@pytest.mark.parametrize("change", GROWTH.values(), ids=GROWTH.keys())
def test_growth_is_no_break(change: Callable[[dict[str, Any]], object]) -> None:
    assert breaks_between(changed(change)) == []


def test_a_break_with_any_older_version_is_found_not_only_with_the_last() -> None:
    first, second = changed(GROWTH["a field with a default"])
    third = copy.deepcopy(second)
    field_of(third, "locale")["type"] = ["null", "long"]
    assert breaks_between([first, third]) == []
    assert breaks_between([first, second, third]) != []


def test_the_table_of_topics_and_versions_is_that_of_the_code() -> None:
    links = {
        v.event: f"[{v.version}](avro/{v.event}.v{v.version}.avsc) `{v.fingerprint.hex()}`"
        for v in schema_versions()
    }
    rows = [
        row.strip("|").split("|") for row in README.read_text("utf-8").splitlines() if row.startswith("| ")
    ]
    table: dict[str, list[tuple[str, str]]] = {}
    for row in [row for row in rows if len(row) == 4 and "topic" not in row[0]]:
        topic, _, event, versions = [cell.strip() for cell in row]
        table.setdefault(topic.strip("`") or list(table)[-1], []).append((event.strip("`"), versions))
    for name, spec in TOPICS.items():
        if spec.events:
            for event_type, (event, versions) in zip(spec.events, table[name], strict=True):
                assert event == event_type.__name__
                assert links[event] in versions
    assert set(table) == set(TOPICS)


def test_a_schema_that_left_its_dataclass_is_refused() -> None:
    for event_type in EVENT_TYPES:
        schema = schema_of(event_type)
        if schema["fields"]:
            schema["fields"] = schema["fields"][::-1][:-1]
            with pytest.raises(ValueError, match=r"correct the \.avsc"):
                record_form(schema, event_type)


@pytest.mark.parametrize(
    "text", ["", "{", '{"type":"record"}', '{"type":"record","name":"X","fields":7}', '"int"', "[]", "7"]
)
def test_a_corrupt_schema_file_is_refused_in_one_line_that_says_what_to_do(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ClockTicked.v1.avsc"
    file.write_text(text)
    with pytest.raises(RejectedError, match="git checkout") as caught:
        read_version(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_schema_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ClockTicked.v1.avsc"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RejectedError, match="git checkout"):
        read_version(file)


def test_a_schema_file_of_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clock.avsc").write_text("{}")
    with pytest.raises(RejectedError, match="rename it"):
        read_version(tmp_path / "clock.avsc")
