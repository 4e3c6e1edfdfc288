"""Known faults of published evaluators. For each fault, our code passes a check that a faulty version fails."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clipx.data.preprocess.transforms import Normalise, evaluation_transform
from clipx.models import clip
from clipx.models.towers import open_clip_towers as towers
from clipx.run import checkpoint
from clipx.run.folder import RunFolder
from clipx.run.saving import TrainState
from clipx.types import Inputs
from evaluation.datasets.kinds import Captioned, Labelled, MinimalPairs
from evaluation.datasets.named import NAMED, Classes
from evaluation.datasets.opening import open_dataset
from evaluation.embedding import features as extraction
from evaluation.embedding.encoder import from_checkpoint
from evaluation.embedding.features import Loading
from evaluation.metrics import hits, recall_at_k, retrieval_ranks
from evaluation.runs import groups, results
from evaluation.runs import reader as report_runs
from evaluation.tasks.linear_probe import LinearProbe, Regression, search
from evaluation.tasks.retrieval import Retrieval
from evaluation.types import DEFAULTS, Encoder, FeatureRequest, Features, Result, Settings
from tests.helpers import fakes, replicas
from tests.helpers.folder import settings
from tests.helpers.largest_tensor import Largest
from tests.helpers.runs import untrained

Recall = Callable[[Tensor, Tensor, Tensor, int], dict[str, float]]


# 1. Image-to-text retrieval scores one caption in five and counts the others as hits: 80% for random embeddings.


def check_chance(recall: Recall) -> None:
    images, k = 300, 3
    found = recall(fakes.embeddings(images, 0), fakes.embeddings(5 * images, 1), torch.arange(5 * images) // 5, k)
    assert abs(found["image_to_text"] - k / images) < 4 * (k / images**2) ** 0.5
    assert abs(found["text_to_image"] - k / images) < 4 * (k / images**2 / 5) ** 0.5


def recall_with_a_floor(image: Tensor, text: Tensor, owner: Tensor, k: int) -> dict[str, float]:
    of_caption = torch.ones(len(text), dtype=torch.float64)
    of_caption[::5] = hits(retrieval_ranks(image, text, owner).image_to_text, k)
    return recall_at_k(image, text, owner, k) | {"image_to_text": float(of_caption.mean())}


def test_random_embeddings_do_not_score_80_per_cent() -> None:
    check_chance(recall_at_k)
    with pytest.raises(AssertionError):
        check_chance(recall_with_a_floor)


def test_rows_of_the_papers_protocol_include_the_floor_and_name_the_protocol(tmp_path: Path) -> None:
    counts = (5,) * 60
    data = open_dataset(fakes.captioned(tmp_path / "s", counts), Settings(protocol="paper"))
    assert isinstance(data, Captioned)
    image, text, owner = fakes.embeddings(60, 0), fakes.embeddings(300, 1), torch.arange(300) // 5
    rows = Retrieval().score(data, dict(zip(Retrieval().requests(data), (image, text), strict=True))).results
    for row in rows:
        k, direction = int(row.metric.partition("@")[2]), row.metric.partition("_recall")[0]
        assert row.value == pytest.approx(recall_with_a_floor(image, text, owner, k)[direction], abs=1e-12)
        assert row.split == "all, paper protocol"
    assert rows[0].value >= 0.8 and rows[0].hashes == {"protocol/all": "paper"}


# 2. Of an image's five captions, only one counts as a right answer.


def check_every_caption_counts(recall: Recall) -> None:
    for right in range(5):  # only this caption of each image equals the image's vector
        text = -torch.eye(6).repeat_interleave(5, dim=0)
        text[right::5] = torch.eye(6)
        assert recall(torch.eye(6), text, torch.arange(30) // 5, 1)["image_to_text"] == 1.0


def recall_of_one_caption(image: Tensor, text: Tensor, owner: Tensor, k: int) -> dict[str, float]:
    return recall_at_k(image, text[::5], owner[::5], k)


def test_all_captions_of_an_image_are_right_answers() -> None:
    check_every_caption_counts(recall_at_k)
    with pytest.raises(AssertionError):
        check_every_caption_counts(recall_of_one_caption)


# 3. The category of a pair is taken from the position of its row.

TYPES = ["Color and Appearance", "Quantity and Count", "Color and Appearance", "Text"]


def check_categories(categories: Callable[[Path], list[str]], folder: Path) -> None:
    assert categories(folder) == TYPES


def our_categories(folder: Path) -> list[str]:
    data = open_dataset(f"mmvp:{folder.parent}")
    assert isinstance(data, MinimalPairs)
    return data.categories("test")


def categories_by_position(folder: Path) -> list[str]:
    return sorted(TYPES)  # assumes that the pairs are sorted by category


def categories_by_row(folder: Path) -> list[str]:
    rows = (folder / "Questions.csv").read_text().splitlines()[1:]
    return [row.split(",")[1] for row in rows[::2]]  # assumes that pair p is rows 2p and 2p+1, whatever their ids


def test_the_category_of_a_pair_comes_from_its_column(tmp_path: Path) -> None:
    folder = replicas.mmvp(tmp_path, TYPES, reverse=True)
    check_categories(our_categories, folder)
    with pytest.raises(AssertionError):
        check_categories(categories_by_position, folder)
    with pytest.raises(AssertionError):
        check_categories(categories_by_row, folder)


# 4. Opening a data set overwrites the templates of the sets opened before.


class OneTableForAll:
    """Faulty data set: all instances share one list of templates."""

    shared: list[str]

    def __init__(self, spec: str) -> None:
        self.own = open_dataset(spec)
        assert isinstance(self.own, Labelled)
        OneTableForAll.shared = self.own.templates

    def texts(self, split: str, view: str) -> list[str]:
        assert isinstance(self.own, Labelled)
        return [t.replace("{c}", name) for name in self.own.classnames for t in OneTableForAll.shared]


def check_own_templates(opened: Callable[[str], Any], specs: list[str]) -> None:
    alone = [opened(spec).texts("test", "prompts") for spec in specs]
    together = [opened(spec) for spec in specs]
    assert [data.texts("test", "prompts") for data in together] == alone


def test_each_set_keeps_its_own_templates(tmp_path: Path) -> None:
    specs = [fakes.labelled(tmp_path / name) for name in ("a", "b")]
    (tmp_path / "b" / "zeroshot_classification_templates.txt").write_text("a drawing of {c}\n")
    replicas.pets(tmp_path)
    specs.append(f"pets:{tmp_path}")
    check_own_templates(open_dataset, specs)
    with pytest.raises(AssertionError):
        check_own_templates(OneTableForAll, specs)


# 5. The model has another activation function than the one its weights were trained with.


def check_activation(create: Callable[[str], nn.Module]) -> None:
    assert "QuickGELU" in repr(create("openai")) and "QuickGELU" not in repr(create("laion"))


def create_without_looking_at_the_tag(tag: str) -> nn.Module:
    return towers.create_model("mini-vit-48", None, "model", custom_text=False, load=False)


def test_the_activation_matches_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    towers.tower_names()  # registers our small configurations
    tags = {"openai": {"quick_gelu": True}, "laion": {}}
    monkeypatch.setattr("open_clip.get_pretrained_cfg", lambda model, tag: tags[tag])
    check_activation(lambda tag: towers.create_model("mini-vit-48", tag, "model", custom_text=False, load=False))
    with pytest.raises(AssertionError):
        check_activation(create_without_looking_at_the_tag)


# 6. Test images are normalised with other constants than training images.

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)  # used by no existing model


def run_with_own_constants(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run from published weights whose normalisation constants are not those of the model's configuration."""
    monkeypatch.setattr("open_clip.get_pretrained_cfg", lambda model, tag: {"mean": MEAN, "std": STD})
    config = settings(root, text="open_clip:mini-48")
    config.model.image.pretrained = config.model.text.pretrained = "published"
    return untrained(config)


def check_normalisation(run: Path) -> None:
    """Assert that the encoder's preprocessing normalises an image as training does."""
    from PIL import Image

    encoder, _ = from_checkpoint(run, torch.device("cpu"))
    inputs = clip.build_model(RunFolder(run).load_config(), pretrained=False).inputs
    assert (inputs.mean, inputs.std) == (MEAN, STD)
    size = inputs.image_size
    pixels = torch.tensor([200, 100, 50], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, size, size)
    image = Image.new("RGB", (size, size), (200, 100, 50))
    torch.testing.assert_close(encoder.preprocess(image)[None], Normalise(inputs, torch.device("cpu"))(pixels))


def imagenets_constants(inputs: Inputs) -> Callable[[Any], Tensor]:
    return evaluation_transform(replace(inputs, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)))


def test_test_images_are_normalised_as_training_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with_own_constants(tmp_path, monkeypatch)
    check_normalisation(run)
    monkeypatch.setattr("evaluation.embedding.encoder.evaluation_transform", imagenets_constants)
    with pytest.raises(AssertionError):
        check_normalisation(run)


# 7. The cache of embeddings does not depend on the checkpoint.


def check_cache(data: Captioned, folder: Path) -> None:
    request = FeatureRequest(data.name, "all", "images")
    first, second = fakes.encoder(checkpoint="c0"), fakes.encoder(checkpoint="c1")
    for model in (first, replace(second, image=lambda batch: -second.image(batch))):
        found = extraction.extract(model, {data.name: data}, [request], folder, Loading(4, 0, "cpu"))[request]
        pixels = torch.stack([model.preprocess(image) for image in data.images("all")])
        assert torch.equal(found.sign(), model.image(pixels).sign())


def test_the_cache_key_depends_on_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_dataset(fakes.captioned(tmp_path / "s"))
    assert isinstance(data, Captioned)
    check_cache(data, tmp_path / "ours")

    def key_of_data_only(encoder: Encoder, data: Captioned, request: FeatureRequest) -> str:
        return data.fingerprint(request.split, request.view)

    monkeypatch.setattr(extraction, "cache_key", key_of_data_only)
    with pytest.raises(AssertionError):
        check_cache(data, tmp_path / "faulty")


# 8. The linear probe's C is tuned on the test split.


def probe_of_ours(data: Labelled, features: Features) -> float:
    artifact = LinearProbe().score(data, features).artifact
    assert artifact is not None
    return float(artifact["chosen_C"])


def probe_tuned_on_test(data: Labelled, features: Features) -> float:
    train, test = (features[request] for request in LinearProbe().requests(data))
    found = search(Regression(train, data.labels("train"), len(data.classnames)), test, data.labels("test"))
    return float(found.chosen)


def check_blind_to_test(probe: Callable[[Labelled, Features], float], folder: Path) -> None:
    data = open_dataset(fakes.labelled(folder, classes=3, train=60, test=60))
    assert isinstance(data, Labelled)
    features = {
        request: fakes.embeddings(60, seed, dim=8) + torch.eye(3, 8)[data.labels(request.split)]
        for seed, request in enumerate(LinearProbe().requests(data))
    }
    honest = probe(data, features)
    with_wrong_test = {request: x.flip(0) if request.split == "test" else x for request, x in features.items()}
    assert probe(data, with_wrong_test) == honest


def test_the_choice_of_c_is_blind_to_the_test_split(tmp_path: Path) -> None:
    check_blind_to_test(probe_of_ours, tmp_path / "ours")
    with pytest.raises(AssertionError):
        check_blind_to_test(probe_tuned_on_test, tmp_path / "faulty")


# 9. A checkpoint is selected on the validation set that is reported.


@pytest.fixture(scope="module")
def evaluated_twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with two checkpoints, of which the first scored better on the reported set."""
    config = settings(tmp_path_factory.mktemp("twice"))
    config.model.image.name = "small:conv"
    run = RunFolder.create(config).path
    model = clip.build_model(config)
    rows = []
    for step, value in ((10, 0.9), (20, 0.8)):
        torch.nn.init.constant_(next(model.image.parameters()), step)
        kept = TrainState(model, torch.optim.SGD(model.parameters()), "data", step=step).save(run)
        hashes = {"checkpoint": checkpoint.verify(kept)["sha256"][checkpoint.WEIGHTS][:16]}
        rows.append(Result("zeroshot", "s", "test", "top1", value, 10, 0, 1, 0.1, True, 0, "test", hashes))
    results.write(run / "results.jsonl", rows)
    return run


def check_selection(opened: Callable[[Path], Encoder], run: Path) -> None:
    """Assert that the last checkpoint is evaluated, whatever the earlier scores on the reported set are."""
    last = results.read(run / "results.jsonl")[-1]
    assert opened(run).provenance["checkpoint"] == last.hashes["checkpoint"]


def opened_by_us(run: Path) -> Encoder:
    return from_checkpoint(run, torch.device("cpu"))[0]


def best_on_the_reported_set(run: Path) -> Encoder:
    best = max(results.read(run / "results.jsonl"), key=lambda row: row.value).hashes["checkpoint"]
    return next(
        encoder for path in checkpoint.checkpoints(run) if best in (encoder := opened_by_us(path)).provenance.values()
    )


def test_the_checkpoint_is_not_chosen_by_the_reported_score(evaluated_twice: Path) -> None:
    check_selection(opened_by_us, evaluated_twice)
    with pytest.raises(AssertionError):
        check_selection(best_on_the_reported_set, evaluated_twice)


def check_reported_row(reported: Callable[[Path], float], run: Path) -> None:
    """Assert that the report shows the last of several evaluations of a run."""
    assert reported(run) == 0.8


def reported_by_us(run: Path) -> float:
    (summary,) = groups.summarise_metrics(groups.group_runs([report_runs.read(run)]))
    return summary.row.value


def best_row(run: Path) -> float:
    return max(row.value for row in results.read(run / "results.jsonl"))


def test_the_report_does_not_show_the_best_of_several_evaluations(evaluated_twice: Path) -> None:
    check_reported_row(reported_by_us, evaluated_twice)
    with pytest.raises(AssertionError):
        check_reported_row(best_row, evaluated_twice)


def check_disjoint(known: Classes, root: Path) -> None:
    """Assert that the splits that serve to fit or to choose C have no image of the test split."""
    data = known.open("imagenet", f"imagenet:{root}", root, DEFAULTS)
    paths = {split: set(data.images(split).paths) for split in data.splits}  # type: ignore[attr-defined]
    assert paths["test"] and len(paths) > 1
    assert all(not paths["test"] & found for split, found in paths.items() if split != "test")


def test_imagenets_validation_images_are_used_for_the_test_only(imagenet: Path) -> None:
    known = NAMED["imagenet"]
    assert isinstance(known, Classes)
    check_disjoint(known, imagenet)
    with pytest.raises(AssertionError):
        check_disjoint(replace(known, own_names={"train": "val", "test": "val"}), imagenet)
    with pytest.raises(AssertionError):
        check_disjoint(replace(known, markers=known.markers | {"val": "imagenet/val"}), imagenet)


# 10. Samples of an incomplete last batch are dropped, or repeated to complete the batch.

Extract = Callable[[Encoder, Captioned, int], Tensor]


def check_each_once(extract: Extract, folder: Path) -> None:
    data = open_dataset(fakes.captioned(folder, counts=(1,) * 11))
    assert isinstance(data, Captioned)
    model = fakes.encoder()
    expected = torch.cat([model.image(model.preprocess(image)[None]) for image in data.images("all")])
    for batch_size in (3, 4, 11, 16):
        found = extract(model, data, batch_size)
        assert found.shape == expected.shape and torch.allclose(found, expected, atol=1e-6), batch_size


def test_no_sample_of_the_last_batch_is_dropped_or_repeated(tmp_path: Path) -> None:
    def ours(model: Encoder, data: Captioned, batch_size: int) -> Tensor:
        request = FeatureRequest(data.name, "all", "images")
        cache = tmp_path / f"cache{batch_size}"
        loading = Loading(batch_size, 0, "cpu")
        return extraction.extract(model, {data.name: data}, [request], cache, loading)[request]

    def dropped(model: Encoder, data: Captioned, batch_size: int) -> Tensor:
        found = ours(model, data, batch_size)
        return found[: len(found) // batch_size * batch_size]

    def repeated(model: Encoder, data: Captioned, batch_size: int) -> Tensor:  # like DistributedSampler
        found = ours(model, data, batch_size)
        return torch.cat([found, found[: -len(found) % batch_size]])

    check_each_once(ours, tmp_path / "s")
    with pytest.raises(AssertionError):
        check_each_once(dropped, tmp_path / "s")
    with pytest.raises(AssertionError):
        check_each_once(repeated, tmp_path / "s")


# 11. Retrieval holds the whole similarity matrix in memory.


def check_memory(recall: Recall) -> None:
    images, texts = 3_000, 15_000
    owner = torch.arange(texts) // 5
    with Largest() as largest:  # type: ignore[no-untyped-call]
        recall(fakes.embeddings(images, 0, dim=2), fakes.embeddings(texts, 1, dim=2), owner, 1)
    assert largest.elements < images * texts / 2


def recall_of_the_whole_matrix(image: Tensor, text: Tensor, owner: Tensor, k: int) -> dict[str, float]:
    scores = text @ image.T
    return {"text_to_image": float((scores.argmax(dim=1) == owner).double().mean())}


def test_retrieval_does_not_hold_the_whole_matrix() -> None:
    check_memory(recall_at_k)
    with pytest.raises(AssertionError):
        check_memory(recall_of_the_whole_matrix)
