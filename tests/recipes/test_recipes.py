"""The recipes: arms compose to the settings that the papers state, and no two arms are the same run."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from cli.settings.compose import compose_eval, compose_run
from cli.settings.recipes import recipe, recipes
from clipx import objectives
from clipx.config.schema import RunConfig, ScenesConfig
from clipx.models import temperature
from clipx.objectives.nuclr import NuclrTerm
from clipx.run.folder import earlier_runs
from clipx.training import modality_mixing, optimizer
from clipx.types import Progress
from evaluation.claims.measures import CombinedReader, MetricReader
from evaluation.claims.published import TABLES
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import ANY
from tests.helpers.runs import log, trained

FOLDER = Path(__file__).parent.parent.parent / "recipes"


@cache
def composed(name: str, arm: str) -> RunConfig:
    return compose_run([f"recipe={name}", *([f"arm={arm}"] if arm else [])])


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_arm_composes_builds_its_parts_and_is_another_run(name: str) -> None:
    runs = set()
    for arm in recipe(name).arms or [""]:
        config = composed(name, arm)
        assert (config.recipe, config.arm, config.name) == (name, arm, f"{name}-{arm}" if arm else name)
        objectives.build(config.objective, num_samples=1000)
        temperature.build_temperature(config.temperature)
        modality_mixing.build_mixing(config.mixing.kind, config.mixing.probability, seed=0)
        optimizer.build_lr_schedule(config.schedule, config.optimizer.lr, steps_per_epoch=10)
        run = repr(replace(config, name="", arm=""))
        assert run not in runs, f"{arm} is the same run as another arm"
        runs.add(run)


@pytest.mark.parametrize("name", sorted({name for claim in CLAIMS for name in claim.recipes}))
def test_a_recipe_lists_the_claims_that_it_tests_and_has_the_arms_that_they_compare(name: str) -> None:
    tested = [claim for claim in CLAIMS if name in claim.recipes]
    assert yaml.safe_load((FOLDER / f"{name}.yaml").read_text())["claims"] == [claim.id for claim in tested]
    arms = {ANY, *recipe(name).arms}
    for claim in tested:
        for comparison in claim.comparisons:
            missing = set(comparison.arms) - arms
            assert not missing or comparison.only_recipe not in ("", name), f"{claim.id}: {missing}"


@pytest.mark.parametrize("g", ["log1p", "ratio"])
@pytest.mark.parametrize("denominator", ["own", "same_label"])
def test_eta_times_the_share_of_labelled_captions_is_as_in_paper_2(g: str, denominator: str) -> None:
    for eta in (100, 1000):
        settings = composed("counting_mini", f"{denominator}_{g}_{eta}").objective["keyword"]
        assert settings == {"weight": pytest.approx(eta * 0.0028 / 0.08), "g": g, "denominator": denominator}


def tasks_of(measure: object) -> set[str]:
    if isinstance(measure, CombinedReader):
        return {reader.task for reader in measure.readers}
    return {measure.task} if isinstance(measure, MetricReader) else set()


@pytest.mark.parametrize("name", ["counting_datacomp", "nuclr_cc3m", "nuclr_cc12m"])
def test_a_recipe_evaluates_exactly_the_tasks_that_its_claims_and_tables_need(name: str) -> None:
    columns = [column.reader for table in TABLES if table.recipe == name for column in table.columns]
    claims = [claim for claim in CLAIMS if name in claim.recipes]
    comparisons = [one for claim in claims for one in claim.comparisons if one.only_recipe in ("", name)]
    needed = set().union(*map(tasks_of, columns), *(tasks_of(m) for one in comparisons for m in one.measures))
    (settings,) = recipe(name).evaluations
    assert set(compose_eval(settings).tasks) == needed


NUMBERS: dict[str, dict[str, Any]] = {
    "clip_reg_cc3m": {  # paper 1, appendix C
        "model.embed_dim": 512, "model.image.name": "timm:resnet50",
        "model.text.name": "hf:distilbert-base-uncased",
        "optimizer.lr": 1e-4,  # of the image tower and, as the paper is silent, of the temperature
        "model.image.lr_factor": 1.0, "model.text.lr_factor": 0.1, "model.projection_lr_factor": 10.0,
        "optimizer.weight_decay": 1e-3, "train.batch_size": 32, "train.epochs": 8, "temperature.kind": "learned",
        "temperature.tau": 0.07, "data.name": "cc3m",
    },
    "margin_mscoco": {
        "data.held_out": 0.2, "train.keep_best": "min:loss", "data.captions": "each", "temperature.kind": "fixed",
        "train.batch_size": 64,
    },
    "counting_datacomp": {  # paper 2, section 6
        "model.image.name": "open_clip:ViT-B-32", "train.batch_size": 4096, "train.samples": 12_800_000,
        "optimizer.lr": 5e-4, "optimizer.betas": [0.9, 0.98], "optimizer.weight_decay": 0.2,
        "schedule.warmup_steps": 500, "temperature.tau": 0.07,
    },
    "gap_mscoco": {  # paper 4, appendix E.1
        "model.image.name": "open_clip:RN50", "train.batch_size": 1024, "train.epochs": 100,
        "schedule.kind": "cosine", "schedule.warmup_epochs": 20, "temperature.max_scale": 100.0,
    },
    "nuclr_cc3m": {  # paper 3, appendix H, and the authors' code
        "model.embed_dim": 256, "model.image.size": 256, "model.text.context_length": 30, "train.batch_size": 512,
        "train.epochs": 30, "optimizer.lr": 2e-4, "optimizer.weight_decay": 0.02, "schedule.min_lr": 1e-6,
        "schedule.warmup_lr": 1e-5, "schedule.warmup_steps": 500, "temperature.kind": "fixed",
        "temperature.tau": 0.01, "data.crop_scale": [0.5, 1.0], "data.flip": True, "data.rand_augment": [2, 7],
        "data.clean": "lower_no_punctuation",
    },
    "wpse_cc3m": {  # paper 5, sections 6.1 and 6.2, appendix A, and the authors' code
        "model.image.name": "open_clip:ViT-B-16", "model.points.features_train": 1024,
        "model.points.features_eval": 512, "data.crop_scale": [0.5, 1.0], "optimizer.lr": 5e-4,
        "optimizer.betas": [0.9, 0.98], "optimizer.weight_decay": 0.5, "schedule.kind": "cosine",
        "schedule.warmup_epochs": 2, "schedule.warmup_lr": 1e-6, "schedule.min_lr": 1e-5, "temperature.tau": 0.07,
        "temperature.min_scale": 1.0, "temperature.max_scale": 100.0, "train.batch_size": 2048, "train.epochs": 50,
    },
}  # fmt: skip
NUMBERS["nuclr_cc12m"] = NUMBERS["nuclr_cc3m"]
NUMBERS["wpse_cc12m"] = NUMBERS["wpse_cc3m"] | {"schedule.warmup_epochs": 1, "train.epochs": 35}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_recipe_at_the_papers_scale_has_the_papers_settings_and_arms_and_three_seeds(name: str) -> None:
    settings = OmegaConf.structured(composed(name, list(recipe(name).arms)[1 if name == "margin_mscoco" else 0]))
    assert {key: OmegaConf.select(settings, key) for key in NUMBERS[name]} == NUMBERS[name]
    arms = {arm for table in TABLES if table.recipe == name for arm in table.rows}
    assert arms <= set(recipe(name).arms)
    assert recipe(name).seeds == 3


ARM_NUMBERS: list[tuple[str, str, dict[str, Any]]] = [
    ("clip_reg_cc3m", "clip_reg", {"objective": {"clip": {}, "positive": {"weight": 0.1}}}),
    ("clip_reg_cc3m", "second_clip_reg", {"model.image.name": "timm:tiny_vit_21m_224"}),
    ("clip_reg_cc3m", "clip", {"temperature.max_scale": 100.0}),
    *(  # tau cannot fall below its initial value of 0.07
        (name, arm, {"temperature.max_scale": 14.2857143})
        for name in ("clip_reg_cc3m", "clip_reg_mini")
        for arm in ("clip_tau_min_07", "clip_reg_tau_min_07")
    ),
    ("margin_mscoco", "tau_07", {"train.epochs": 5}),
    ("margin_mscoco", "untrained", {"train.samples": 0, "train.epochs": None}),
    ("margin_mscoco", "tau_01_reg", {"temperature.tau": 0.01, "objective.positive.weight": 0.1}),
    ("counting_datacomp", "same_label_ratio_100", {"objective.keyword.weight": 100, "objective.keyword.g": "ratio"}),
    ("gap_mscoco", "ts_s3", {"temperature.tau": 0.01, "temperature.tau_end": 0.05, "temperature.kind": "linear"}),
    ("gap_mscoco", "ts_a1", {"temperature.tau": 0.01, "temperature.tau_end": 0.04, "temperature.kind": "cosine"}),
    ("gap_mscoco", "scale_10", {"temperature.s": 10.0, "temperature.parameterisation": "scaled_exp"}),
    ("gap_mscoco", "hs_1e-3", {"mixing.kind": "hard", "mixing.probability": 1e-3}),
    # both ends of the range that paper 4 searched for soft mixing
    ("gap_mscoco", "ss_1e-2", {"mixing.kind": "soft", "mixing.probability": 1e-2}),
    ("gap_mscoco", "ss_1e-1", {"mixing.kind": "soft", "mixing.probability": 1e-1}),
    ("gap_mscoco", "no_norm", {"model.normalise": "never", "temperature.kind": "fixed"}),
    ("nuclr_cc3m", "siglip", {"temperature.kind": "learned", "temperature.tau": 0.1, "temperature.bias": -10.0}),
    ("nuclr_cc3m", "cyclip", {"objective.cyclic_inmodal.weight": 0.1, "objective.cyclic_crossmodal.weight": 0.1}),
    *((name, "dcl", {"objective": {"dcl": {"tau_plus": 0.1}}}) for name in ("nuclr_cc3m", "nuclr_cc12m", "nuclr_mini")),
    ("nuclr_cc3m", "sogclr", {"objective": {"sogclr": {"gamma": 0.8}}}),
    ("nuclr_cc3m", "gcl", {"objective": {"sogclr": {"gamma": 0.8, "own_pair": True}}}),
    ("gap_dynamics_mini", "learned", {"temperature.kind": "learned", "temperature.tau": 0.07}),
    ("gap_dynamics_mscoco", "start", {"mixing.kind": "hard", "mixing.probability": 1.0, "train.samples": 40_960}),
    ("gap_dynamics_mscoco", "small_gap", {"model.init": "arm:start", "train.samples": 10_240_000}),
    ("nuclr_cc3m", "nuclr", {"objective.nuclr.zeta0": -0.05, "objective.nuclr.freeze_epochs": 5}),
    ("nuclr_cc12m", "nuclr", {"objective.nuclr.zeta0": 0.0, "objective.nuclr.gamma": 0.8}),
    ("wpse_cc3m", "clip", {"model.points.kernel": "none", "temperature.parameterisation": "exp"}),
    ("wpse_cc3m", "imq", {"model.points.kernel": "imq", "temperature.parameterisation": "identity"}),
    ("wpse_cc3m", "positive_weights", {"model.points.weights": "sigmoid", "model.points.kernel": "imq"}),
    ("wpse_cc12m", "nonlinear", {"model.points.alpha": [0.0, 1.0], "model.points.kernel": "gaussian"}),
    # config/01_post-pre-training/clip-refine.yaml of yshinya6/clip-refine names no schedule: the rate is constant
    ("objectives_cc3m", "clip_refine", {"schedule.kind": "constant", "optimizer.eps": 1e-8}),
]


@pytest.mark.parametrize(("name", "arm", "numbers"), ARM_NUMBERS, ids=[f"{name}-{arm}" for name, arm, _ in ARM_NUMBERS])
def test_settings_of_an_arm_are_those_of_the_paper(name: str, arm: str, numbers: dict[str, Any]) -> None:
    settings = OmegaConf.structured(composed(name, arm))
    assert {key: OmegaConf.select(settings, key) for key in numbers} == numbers


@pytest.mark.parametrize(("name", "n"), [("nuclr_cc3m", 2_723_200), ("nuclr_cc12m", 9_184_256)])
def test_the_step_size_of_zeta_is_that_of_the_authors_script_times_n(name: str, n: int) -> None:
    settings = {key: value for key, value in composed(name, "nuclr").objective["nuclr"].items() if key != "weight"}
    assert NuclrTerm(n, **settings).eta == pytest.approx(5e-6 * n)


def test_counting_labels_are_the_numbers_from_two_to_twenty() -> None:
    words = composed("counting_datacomp", "clip").data.keywords
    assert len(words) == 19 and (words[0], words[8], words[-1]) == ("two", "ten", "twenty")


def test_warm_up_of_gap_mscoco_is_a_fifth_of_the_run() -> None:
    config = composed("gap_mscoco", "base")
    rate = optimizer.build_lr_schedule(config.schedule, config.optimizer.lr, steps_per_epoch=80)
    rates = [rate(Progress(step, 8000, step // 80, 100)) for step in (0, 799, 1599, 1600, 7999)]
    assert rates == pytest.approx([5e-4 / 1600, 2.5e-4, 5e-4, 5e-4, 0.0], abs=1e-9)


FOR_FINE_TUNING = {"counterfactual", "feature_distill"}
WITHOUT = {  # recipe -> terms that it leaves out; the others lack their input in its data
    "objectives_mini": FOR_FINE_TUNING,
    "objectives_photos": {"keyword", "negclip", "multi_positive"} | FOR_FINE_TUNING,
    "objectives_cc3m": {"negclip", "multi_positive"} | FOR_FINE_TUNING,
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_recipe_of_objectives_has_every_term_with_its_teacher_and_bias(name: str) -> None:
    configs = {arm: composed(name, arm) for arm in recipe(name).arms}
    assert {term for config in configs.values() for term in config.objective} == set(objectives.TERMS) - WITHOUT[name]
    for arm, config in configs.items():
        needs = objectives.build(config.objective, num_samples=9000).needs
        assert ("teacher" in needs) == (config.model.teacher is not None), arm
        assert ("bias" in needs) == (config.temperature.bias is not None), arm
    published = name == "objectives_cc3m"
    taught = [] if published else [Path(f"runs/{name}-clip/s0")]
    assert earlier_runs(configs["drrho"]) == taught


def test_training_starts_with_a_small_gap_in_the_arm_of_that_name(tmp_path: Path, scenes: ScenesConfig) -> None:
    """Paper 4, Figure 1(b), in smaller batches."""
    gaps = []
    for arm, steps in (("start", 20), ("small_gap", 1)):
        config = compose_run(["recipe=gap_dynamics_mini", f"arm={arm}"])
        config.runs, config.data.cache, config.data.workers = str(tmp_path), "memory", 0
        config.data.scenes, config.log.geometry_pairs, config.train.batch_size = scenes, 64, 64
        config.train.samples = steps * 64
        gaps.append(log(trained(config))[0]["geometry"]["gap"])
    assert gaps[1] < gaps[0] / 2
