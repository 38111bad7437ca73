"""Equal tokenizers have equal names, whatever else differs in their folders."""

import json
from pathlib import Path

from schemas.tokenizer import chat_template_digest, tokenizer_digest


def folder(path: Path, **files: str) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def test_a_tokenizer_is_named_by_its_own_files_only(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", tokenizer__json="{}", config__json="1")
    two = folder(tmp_path / "two", tokenizer__json="{}", config__json="2", vocab__json="[]")
    other = folder(tmp_path / "other", tokenizer__json="[]")
    assert tokenizer_digest(one) == tokenizer_digest(two) != tokenizer_digest(other)


def test_the_parts_of_an_older_tokenizer_all_count(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", vocab__json="{}", merges__txt="a b")
    two = folder(tmp_path / "two", vocab__json="{}", merges__txt="a c")
    assert tokenizer_digest(one) != tokenizer_digest(two)


def test_a_template_has_one_name_wherever_it_stands(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", chat_template__jinja="{{ x }}")
    two = folder(tmp_path / "two", tokenizer_config__json=json.dumps({"chat_template": "{{ x }}"}))
    none = folder(tmp_path / "none")
    assert chat_template_digest(one) == chat_template_digest(two) != chat_template_digest(none)
