"""What the gate lets pass, and what it says of everything else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from release.gate import Facts, Shape, judge_base, judge_files
from release.head import incumbent_of
from schemas.events import ArtifactKind, VerdictReason
from schemas.ids import ReleaseId, Sha256
from schemas.manifest import ManifestFile, manifest_sha256
from tests.builders import SHA256, a_candidate_trained
from tests.unit.release.making import (
    BASE,
    a_chain,
    a_draft,
    a_good_candidate,
    a_manifest,
    good_facts,
    published,
    tensors_of,
)

OTHER = Sha256("e7" * 32)
NOTHING = Facts(manifest=None, manifest_sha256=None, files={}, tensors={})


def test_a_candidate_that_is_what_it_says_passes() -> None:
    candidate = a_good_candidate()
    assert judge_files(candidate, good_facts(candidate), BASE) == ()


def test_a_folder_without_a_manifest_misses_a_file() -> None:
    assert judge_files(a_good_candidate(), NOTHING, BASE) == (VerdictReason.MISSING_FILE,)


@pytest.mark.parametrize(
    "changes",
    [
        {"manifest": None},
        {"manifest_sha256": OTHER},
        {"manifest": a_manifest(a_good_candidate(), "model.safetensors", kind=ArtifactKind.LORA)},
        {
            "manifest": a_manifest(
                a_good_candidate(), "model.safetensors", base_release_id=ReleaseId("c9" * 32)
            )
        },
        {"manifest": a_manifest(a_good_candidate(), "model.safetensors", batch_ids=("another",))},
    ],
)
def test_a_manifest_other_than_the_announced_one_is_refused(changes: dict[str, object]) -> None:
    candidate = a_good_candidate()
    facts = good_facts(candidate, **changes)
    assert judge_files(candidate, facts, BASE) == (VerdictReason.MANIFEST_MISMATCH,)


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["whole", "gone", "other"]), min_size=1))
def test_every_named_file_must_be_there_and_be_the_same(states: dict[str, str]) -> None:
    candidate = a_candidate_trained(kind=ArtifactKind.HARNESS)
    manifest = a_manifest(candidate, *states)
    candidate = replace(candidate, manifest_sha256=manifest_sha256(manifest.encode()))
    found = {
        path: ManifestFile(path=path, sha256=SHA256, size=10 if state == "whole" else 6)
        for path, state in states.items()
        if state != "gone"
    }
    facts = good_facts(candidate, manifest=manifest, files=found, tensors={})
    reasons = set(judge_files(candidate, facts, BASE))
    assert (VerdictReason.MISSING_FILE in reasons) == ("gone" in states.values())
    assert (VerdictReason.DIGEST_MISMATCH in reasons) == ("other" in states.values())
    assert bool(reasons) == (set(states.values()) != {"whole"})


def test_weights_without_a_tensor_are_empty() -> None:
    candidate = a_good_candidate()
    assert judge_files(candidate, good_facts(candidate, tensors={}), BASE) == (VerdictReason.EMPTY,)


def test_a_tree_without_a_file_is_empty() -> None:
    candidate = a_candidate_trained(kind=ArtifactKind.ROUTING)
    manifest = a_manifest(candidate)
    candidate = replace(candidate, manifest_sha256=manifest_sha256(manifest.encode()))
    facts = good_facts(candidate, manifest=manifest, files={}, tensors={})
    assert judge_files(candidate, facts, BASE) == (VerdictReason.EMPTY,)


SHAPES = st.dictionaries(
    st.sampled_from([*BASE, "model.c.weight"]), st.sampled_from([(4, 8), (3,), (8, 4)]), min_size=1
)


@given(SHAPES, st.sets(st.sampled_from([*BASE, "model.c.weight"])))
def test_weights_pass_exactly_when_names_and_shapes_are_the_bases_and_all_is_finite(
    shapes: dict[str, Shape], unfinite: set[str]
) -> None:
    candidate = a_good_candidate()
    facts = good_facts(candidate, tensors=tensors_of(shapes, unfinite=frozenset(unfinite)))
    reasons = set(judge_files(candidate, facts, BASE))
    assert (VerdictReason.NAME_MISMATCH in reasons) == (set(shapes) != set(BASE))
    assert (VerdictReason.SHAPE_MISMATCH in reasons) == (set(shapes) == set(BASE) and shapes != BASE)
    assert (VerdictReason.NON_FINITE in reasons) == bool(unfinite & set(shapes))
    assert (reasons == set()) == (shapes == BASE and not unfinite & set(shapes))


TARGET = "base_model.model.model.a"


@pytest.mark.parametrize(
    ("shapes", "reasons"),
    [
        ({f"{TARGET}.lora_A.weight": (2, 8), f"{TARGET}.lora_B.weight": (4, 2)}, ()),
        ({f"{TARGET}.lora_A.weight": (2, 8)}, (VerdictReason.NAME_MISMATCH,)),
        (
            {
                "base_model.model.model.z.lora_A.weight": (2, 8),
                "base_model.model.model.z.lora_B.weight": (4, 2),
            },
            (VerdictReason.NAME_MISMATCH,),
        ),
        ({"model.a.weight": (4, 8)}, (VerdictReason.NAME_MISMATCH,)),
        (
            {f"{TARGET}.lora_A.weight": (2, 8), f"{TARGET}.lora_B.weight": (4, 3)},
            (VerdictReason.SHAPE_MISMATCH,),
        ),
        (
            {f"{TARGET}.lora_A.weight": (2, 4), f"{TARGET}.lora_B.weight": (8, 2)},
            (VerdictReason.SHAPE_MISMATCH,),
        ),
    ],
)
def test_an_adapter_is_pairs_that_fit_the_bases_weights(
    shapes: dict[str, Shape], reasons: tuple[VerdictReason, ...]
) -> None:
    candidate = a_candidate_trained(kind=ArtifactKind.LORA)
    manifest = a_manifest(candidate, "adapter_model.safetensors")
    candidate = replace(candidate, manifest_sha256=manifest_sha256(manifest.encode()))
    files = {file.path: file for file in manifest.files}
    facts = good_facts(candidate, manifest=manifest, files=files, tensors=tensors_of(shapes))
    assert judge_files(candidate, facts, BASE) == reasons


KINDS = st.sampled_from([kind for kind in ArtifactKind if kind is not ArtifactKind.UNSPECIFIED])


@given(st.lists(KINDS, max_size=6), KINDS, st.integers(0, 6))
def test_a_candidate_is_superseded_exactly_by_what_took_its_own_place(
    kinds: list[ArtifactKind], kind: ArtifactKind, index: int
) -> None:
    releases = a_chain(1)
    for one in kinds:
        releases.append(published(releases, a_draft(kind=one)))
    base = releases[index % len(releases)]
    since = [release.head.kind for release in releases[base.seq + 1 :]]
    weights = {ArtifactKind.CHECKPOINT, ArtifactKind.LORA}
    rivals = weights if kind in weights else {kind}
    reasons = judge_base(a_good_candidate(kind=kind, base_release_id=base.release_id), releases)
    assert reasons == ((VerdictReason.BASE_SUPERSEDED,) if rivals & set(since) else ())
    incumbent = incumbent_of(releases, kind)
    in_place = [release for release in releases if release.head.kind in rivals]
    assert incumbent == (in_place[-1] if in_place else releases[0])


@given(st.integers(1, 6), st.integers(0, 7))
def test_only_what_was_trained_from_the_head_may_follow_it(length: int, index: int) -> None:
    releases = a_chain(length)
    base = releases[index].release_id if index < length else ReleaseId("d0" * 32)
    reasons = judge_base(a_good_candidate(base_release_id=base), releases)
    expected = {length - 1: ()} | {n: (VerdictReason.BASE_SUPERSEDED,) for n in range(length - 1)}
    assert reasons == expected.get(index, (VerdictReason.FOREIGN_BASE,))
