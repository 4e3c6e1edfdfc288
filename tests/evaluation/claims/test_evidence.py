"""Runs and results that could change a verdict unnoticed are left out, each with a message."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.claims.design import Design, describe_claims, store
from evaluation.claims.evidence import collect_evidence
from evaluation.runs.reader import Run
from tests.helpers.synthetic import changed, run

RECIPE = "clip_reg_mini"
ROWS = {("zeroshot", "scenes_colour", "top1"): 0.5, ("zeroshot", "scenes_shape", "top1"): 0.6}


def runs(count: int = 3) -> list[Run]:
    return [run(RECIPE, arm, seed, ROWS) for arm in ("clip", "clip_reg") for seed in range(count)]


def names_of(one: Run) -> list[str]:
    return [row.dataset for row in one.results]


def test_results_on_sets_outside_the_stored_design_do_not_count(tmp_path: Path) -> None:
    added = {("zeroshot", "cifar10", "top1"): 0.9, ("popularity", "small_scenes", "spearman"): 0.4}
    found = [
        replace(
            changed(one, data={"name": "small_scenes"}),
            results=one.results + run(RECIPE, "", one.seed, added).results,
            artifacts={"popularity-small_scenes": {}, "zeroshot_draws-cifar10": {}},
        )
        for one in runs()
    ]
    without_design = collect_evidence(found, [tmp_path])
    assert without_design.left_out == []
    assert "cifar10" in names_of(without_design.runs[RECIPE]["clip"][0])
    sets = ("wds:scenes_colour", "wds:scenes_shape")
    store(tmp_path, Design(RECIPE, "hash", ("clip", "clip_reg"), (3,), describe_claims(RECIPE), sets))
    evidence = collect_evidence(found, [tmp_path])
    first = evidence.runs[RECIPE]["clip"][0]
    assert names_of(first) == ["scenes_colour", "scenes_shape", "small_scenes"]
    assert [*first.artifacts] == ["popularity-small_scenes"]
    assert evidence.left_out == [f"left out, recipe={RECIPE}, not an evaluation set of the stored design: cifar10"]


@pytest.mark.parametrize(
    ("spec", "dataset"),  # of the same set, another split does not count
    [
        ("captions:test", "f8k/test"),
        ("captions:test/", "f8k/test"),
        ("captions:data/f8k/test", "f8k/test"),
        ("karpathy:data/dataset_f8k.json", "f8k/test"),
        ("coco:annotations/captions_val2017.json", "coco/val2017"),
        ("cifar10:evaluation", "cifar10"),
        ("wds:evaluation/flowers/", "flowers"),
        ("csv:captions/dev.csv", "dev"),
        ("swaps:data/f8k/test", "f8k_swaps/test"),
        ("swaps:photos", "photos_swaps"),
        ("hf:somebody/f8k@test", "f8k"),
        ("multi30k:data/multi30k/de", "multi30k_de"),
        ("xtd10:XTD10/XTD10/test_1kcaptions_es.txt", "xtd10_es"),
        ("clevr:CLEVR_v1.0", "clevr_count"),
    ],
)
def test_each_form_of_an_evaluation_set_is_recognised(spec: str, dataset: str, tmp_path: Path) -> None:
    store(tmp_path, Design(RECIPE, "hash", ("clip",), (3,), describe_claims(RECIPE), (spec,)))
    runs = [run(RECIPE, "clip", 0, {("zeroshot", name, "top1"): 0.5 for name in (dataset, "other", "f8k/train")})]
    assert names_of(collect_evidence(runs, [tmp_path]).runs[RECIPE]["clip"][0]) == [dataset]


def test_claims_that_only_an_older_version_knew_are_named() -> None:
    found = [changed(one, claims=["own.2", "1.5", "own.1"]) for one in runs()]
    assert collect_evidence(found, []).left_out == ["not judged, because this version has no such claims: own.1, own.2"]


def test_results_scored_in_another_way_do_not_replace_the_usual_ones() -> None:
    found = runs()
    first = found[0].results[0]
    bf16 = replace(first, value=0.9, hashes={"precision": "bf16 cpu"})
    other_labels = replace(first, value=0.9, hashes={"labels/test": "other"})
    older = replace(first, value=0.9, hashes={"scoring": "1"})
    found[0] = replace(found[0], results=[*found[0].results, bf16, other_labels, older])
    evidence = collect_evidence(found, [])
    assert evidence.runs[RECIPE]["clip"][0].results == runs()[0].results
    (message,) = evidence.left_out
    assert "another precision, version of the task, prompts or examples" in message
    assert message.endswith("/s0 zeroshot scenes_colour")


def test_a_replication_may_be_scored_by_a_later_version_of_the_task_but_not_on_other_labels() -> None:
    found, first = runs(), runs()[0]
    row = replace(first.results[0], seed=100, hashes={"scoring": "2"})
    again = replace(first, seed=100, results=[row, replace(row, metric="top5", hashes={"labels/test": "other"})])
    found[0] = replace(first, results=[*first.results, replace(first.results[0], metric="top5")])
    evidence = collect_evidence([*found, again], [])
    assert evidence.runs[RECIPE]["clip"][100].results == [row]


def test_the_usual_scoring_is_one_that_rows_have() -> None:
    ways = [{"precision": "fp32", "scoring": "1"}] * 3 + [{"precision": "bf16", "scoring": "2"}] * 2
    ways += [{"precision": "fp16", "scoring": "2"}] * 2
    first = runs()[0]
    found = [
        replace(first, seed=seed, results=[replace(first.results[0], seed=seed, hashes=hashes)])
        for seed, hashes in enumerate(ways)
    ]
    of_seed = collect_evidence(found, []).runs[RECIPE]["clip"]
    assert [seed for seed, one in of_seed.items() if one.results] == [0, 1, 2]


def test_the_rows_of_two_splits_are_not_taken_for_two_scorings_of_one() -> None:
    one, two = runs()[0], {"imagenet/val": "a", "imagenet/test": "b"}
    rows = [replace(one.results[0], dataset=name, hashes={"labels/test": labels}) for name, labels in two.items()]
    evidence = collect_evidence([replace(one, results=rows)], [])
    assert evidence.left_out == [] and evidence.runs[RECIPE]["clip"][0].results == rows


def test_copies_of_image_folders_and_other_devices_are_the_same_scoring() -> None:
    found = runs()
    hashes = {"precision": "fp32 cuda", "images/test": "copy", "checkpoint": "a"}
    found[0] = replace(found[0], results=[replace(row, hashes=hashes) for row in found[0].results])
    found = [
        replace(one, results=[replace(row, hashes={"precision": "fp32 cpu"} | row.hashes) for row in one.results])
        for one in found
    ]
    evidence = collect_evidence(found, [])
    assert evidence.left_out == [] and len(evidence.runs[RECIPE]["clip"][0].results) == 2


def test_a_run_on_other_training_samples_is_left_out() -> None:
    found = [replace(one, environment={"data": "100:abc"}) for one in runs()]
    found[-1] = replace(found[-1], environment={"data": "200:def"})
    evidence = collect_evidence(found, [])
    assert sorted(evidence.runs[RECIPE]["clip_reg"]) == [0, 1]
    (message,) = evidence.left_out
    assert "trained on other samples" in message and message.endswith(str(found[-1].path))


def test_arms_with_other_data_settings_may_have_other_samples() -> None:
    found = [replace(one, environment={"data": "100:abc"}) for one in runs()]
    found = [
        replace(changed(one, data={"name": "noisy"}), environment={"data": "90:def"})
        if one.config.arm == "clip_reg"
        else one
        for one in found
    ]
    assert collect_evidence(found, []).left_out == []


def planned(one: Run, step: int, **train: int | None) -> Run:
    """Return the run with a planned length, 500 pairs of which a tenth is held out, and a log that ends at `step`."""
    planned = changed(one, data={"held_out": 0.1}, train=train)
    return replace(planned, environment={"data": "500:abc/image+txt"}, log=[{"step": step}])


@pytest.mark.parametrize("length", [{"samples": 1340, "epochs": None}, {"samples": None, "epochs": 3}])
def test_a_run_that_was_not_trained_to_the_end_is_left_out(length: dict[str, int | None]) -> None:
    steps = 20 if length["samples"] else 21  # seven complete batches in an epoch of 450 pairs
    found = [planned(one, steps, **length) for one in runs()]
    assert collect_evidence(found, []).left_out == []
    found[-1] = planned(found[-1], 7, **length)
    evidence = collect_evidence(found, [])
    assert sorted(evidence.runs[RECIPE]["clip_reg"]) == [0, 1]
    assert evidence.left_out == [
        f"left out, recipe={RECIPE}, not trained to the last step: {found[-1].path} (step 7 of {steps})"
    ]


def test_a_diverged_run_is_not_an_unfinished_one() -> None:
    (*others, last) = [planned(one, 20, samples=1280, epochs=None) for one in runs()]
    lost = planned(last, 7, samples=1280, epochs=None)
    lost = replace(lost, results=[replace(lost.results[0], task="train", metric="loss", value=math.nan)])
    evidence = collect_evidence([*others, lost], [])
    assert evidence.left_out == [] and sorted(evidence.runs[RECIPE]["clip_reg"]) == [0, 1, 2]
