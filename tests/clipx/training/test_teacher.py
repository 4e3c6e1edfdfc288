"""The frozen teacher: a run or a published model, never trained; a teacher with other inputs is refused."""

import json
import shutil
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from clipx.config.presets import TEACHER_TERMS, check_combinations
from clipx.config.schema import RunConfig, TemperatureConfig
from clipx.errors import UserError
from clipx.models.clip import build_model
from clipx.objectives import TERMS
from clipx.run import checkpoint
from clipx.train import fit
from clipx.training.forecast import generated_batch
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.training.teacher import load_teacher
from clipx.types import Batch, Progress
from tests.helpers import tiny
from tests.helpers.folder import settings as small_settings
from tests.helpers.folder import write_shards
from tests.helpers.runs import log, trained, untrained

CPU = torch.device("cpu")
TEACHER = "open_clip:mini-48/random"


def student(folder: Path, teacher: str | None = TEACHER, text: str = "open_clip:mini-48") -> RunConfig:
    """Return the settings of a run that by default reads the tokens of CLIP, as the published teacher does."""
    config = small_settings(folder, epochs=2, text=text)
    config.name, config.objective, config.model.teacher = "student", {"clip": {}, "distill": {}}, teacher
    return config


def small_student(folder: Path, teacher: str = "") -> RunConfig:
    """Return the settings of a run whose teacher is a run of `teachers_run`."""
    config = student(folder, teacher, "small:bag")
    config.model.image.name = "small:conv"
    return config


def teachers_run(folder: Path) -> RunConfig:
    """Return the settings of four steps with small towers."""
    config = small_settings(folder, epochs=2, save_every=2)
    config.model.image.name = "small:conv"
    return config


def built(config: RunConfig) -> tuple[TrainComponents, Batch]:
    components = build_components(config, CPU, 8, "generated")
    return components, generated_batch(components)


def test_a_published_teacher_embeds_as_open_clip_and_is_never_trained(tmp_path: Path) -> None:
    components, batch = built(student(tmp_path))
    teacher = components.teacher
    assert teacher is not None
    image, text = teacher(batch, size=3)
    whole = teacher(batch, size=8)
    assert torch.allclose(image, whole[0], atol=1e-6) and torch.allclose(text, whole[1], atol=1e-6)
    assert not image.requires_grad and not text.requires_grad
    assert torch.allclose(image.norm(dim=1), torch.ones(8)) and teacher.scale.item() == pytest.approx(1 / 0.07)
    train_step(components, batch, Progress(0, 1, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(teacher(batch, 8), whole, strict=True))
    plain = replace(components.config, model=replace(components.config.model, normalise="evaluation"))
    own = load_teacher(plain, components.state.model.inputs, CPU)
    assert (own(batch, 8)[0].norm(dim=1) - 1).abs().min() > 1e-3, "the run normalises in evaluation only"
    names = components.state.model.state_dict().keys()
    assert names == build_model(components.config, pretrained=False).state_dict().keys(), "has the teacher's weights"


@pytest.mark.parametrize(
    ("of_teacher", "of_student", "normalised"),
    [("always", "evaluation", False), ("evaluation", "always", True), ("never", "always", False)],
)
def test_a_teacher_normalises_if_its_run_does_in_evaluation_and_the_student_in_training(
    of_teacher: str, of_student: str, normalised: bool, tmp_path: Path
) -> None:
    config, of_run = small_student(tmp_path), teachers_run(tmp_path)
    of_run.model.normalise, config.model.normalise = of_teacher, of_student
    config.model.teacher = str(untrained(of_run))
    components, batch = built(config)
    assert components.teacher is not None
    assert torch.allclose(components.teacher(batch, 8)[0].norm(dim=1), torch.ones(8), atol=1e-3) is normalised


def test_a_run_can_be_the_teacher_of_another_which_does_not_resume_with_other_weights(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=16)
    first = teachers_run(tmp_path)
    run = trained(first)
    config = small_student(tmp_path, str(run))
    config.log.every, config.train.save_every = 1, 3
    second = trained(config)
    assert {"clip", "distill"} == {name for row in log(second) for name in row["terms"]}
    recorded = json.loads((second / "environment.json").read_text())["teacher"]
    path = checkpoint.resolve(run)
    assert recorded == {"checkpoint": str(path), "sha256": checkpoint.verify(path)["sha256"][checkpoint.WEIGHTS]}

    model = build_model(first, pretrained=False).eval()
    checkpoint.load_weights(model, path)
    teacher = load_teacher(config, model.inputs, CPU)
    batch = built(config)[1]
    with torch.no_grad():
        assert torch.equal(teacher(batch, 8)[0], model.encode_image(batch.image))
        assert torch.equal(teacher(batch, 8)[1], model.encode_text(batch.text))
    assert torch.equal(teacher.scale, model.temperature(Progress(0, 1, 0, 1)))

    shutil.rmtree(checkpoint.resolve(second))
    fit(config, second)
    for folder in (second, run):
        shutil.rmtree(checkpoint.resolve(folder))
    message = r"step_00000002 with other weights than .*step_00000004, the teacher of .*/student/s0 so far"
    with pytest.raises(UserError, match=message):
        fit(config, second)


@pytest.mark.parametrize(("held_out", "tau"), [(0.0, 0.02), (0.5, 0.04)])  # the second of four, or of two steps
def test_a_teacher_has_the_temperature_of_its_checkpoints_step(tmp_path: Path, held_out: float, tau: float) -> None:
    of_run, config = teachers_run(tmp_path), small_student(tmp_path)  # 2 epochs of 2 steps
    of_run.data.held_out = held_out
    of_run.temperature = TemperatureConfig(kind="linear", tau=0.01, tau_end=0.04, every="step")
    config.model.teacher = str(checkpoint.resolve(untrained(of_run, step=2)))
    components, _ = built(config)
    assert components.teacher is not None
    assert 1 / float(components.teacher.scale) == pytest.approx(tau, rel=1e-5)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model.teacher", "open_clip:mini-64/random", r"takes images with image_size=64, this run has 48; they must"),
        ("model.text.context_length", 20, r"reads tokens of mini-48, \d+ tokens, .* this run has mini"),
        ("model.teacher", "open_clip:mini-48", r"open_clip:mini-48 names no weights"),
        ("model.teacher", "nowhere", r"nowhere is missing: give a run directory"),
    ],
)
def test_a_wrong_teacher_is_refused_in_one_line(tmp_path: Path, key: str, value: object, message: str) -> None:
    config, (group, _, field) = student(tmp_path), key.rpartition(".")
    setattr(attrgetter(group)(config), field, value)
    with pytest.raises(UserError, match=message) as raised:
        built(config)
    assert str(raised.value).startswith(f"model.teacher={config.model.teacher}".removesuffix("/random"))
    assert "\n" not in str(raised.value)


def test_tokenizers_with_different_names_and_equal_ids_are_accepted(tmp_path: Path) -> None:
    config = student(tmp_path)
    components = build_components(config, CPU, 8, "generated")
    renamed = replace(components.state.model.inputs, tokenizer="RN50")  # the same byte-pair vocabulary
    assert load_teacher(config, renamed, CPU).scale > 0


def test_a_term_that_needs_a_teacher_is_refused_without_one(tmp_path: Path) -> None:
    assert {name for name, term in TERMS.items() if "teacher" in term.needs} == set(TEACHER_TERMS)
    check_combinations(student(tmp_path))
    with pytest.raises(
        UserError, match=r"objective.distill needs a frozen teacher, but model.teacher is null; allowed:"
    ):
        check_combinations(student(tmp_path, None))
    # terms of plug-ins are known only to `build_components`, which checks before it builds the model
    with pytest.raises(UserError, match=r"distill needs a frozen teacher: set model.teacher"):
        build_components(student(tmp_path, None), CPU, 8, "generated")


def test_a_teacher_that_no_term_needs_is_not_loaded_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards(tmp_path / "train", samples=8)
    config = small_student(tmp_path, TEACHER)
    config.objective, config.train.epochs = {"clip": {}}, 1
    trained(config)
    assert f"model.teacher={TEACHER} is not loaded: no term of the objective needs a teacher" in capsys.readouterr().err


def test_the_teacher_embeds_each_pair_once_per_step() -> None:
    config = tiny.settings({"distill": {}})
    config.model.teacher, config.train.accumulation = "tiny", 4
    run = tiny.components(config)
    assert run.teacher is not None
    run.teacher.image = image = MagicMock(wraps=run.teacher.image)
    train_step(run, next(tiny.batches(config, 1)), Progress(0, 1, 0, 1))
    assert [len(call.args[0]) for call in image.call_args_list] == [2, 2, 2, 2]
