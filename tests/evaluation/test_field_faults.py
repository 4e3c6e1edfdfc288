"""A test against each known fault of published evaluators that no other file tests.

test_metrics.py has the one of an image's captions that alone counts as right; test_chance.py the other captions that
count as hits, with which random embeddings score 80%; test_features.py and test_sharded.py the cache that ignores the
checkpoint, and the samples of the last batch that are dropped or repeated; cli/eval/test_one.py the checkpoint that is
selected on the validation set that is reported; datasets/test_named.py the category of a pair that is taken from the
position of its row.
"""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from clipx.data.preprocess.transforms import Normalise
from clipx.models import clip
from clipx.models.towers import open_clip_towers as towers
from clipx.run.folder import RunFolder
from evaluation.datasets.kinds import Captioned, Labelled
from evaluation.datasets.opening import open_dataset
from evaluation.embedding.encoder import from_checkpoint
from evaluation.metrics import hits, recall_at_k, retrieval_ranks
from evaluation.tasks.linear_probe import LinearProbe
from evaluation.tasks.retrieval import Retrieval
from evaluation.types import Settings
from tests.helpers import fakes, replicas
from tests.helpers.folder import settings
from tests.helpers.largest_tensor import Largest
from tests.helpers.runs import untrained


def test_rows_of_the_papers_protocol_include_the_floor_and_name_the_protocol(tmp_path: Path) -> None:
    data = fakes.opened(fakes.captioned(tmp_path / "s", (5,) * 60), Captioned, Settings(protocol="paper"))
    image, text, owner = fakes.embeddings(60, 0), fakes.embeddings(300, 1), torch.arange(300) // 5
    ranks = retrieval_ranks(image, text, owner)
    rows = fakes.scored(Retrieval(), data, image, text).results
    for row in rows:
        k = int(row.metric.partition("@")[2])
        of_caption = torch.ones(len(text), dtype=torch.float64)
        of_caption[::5] = hits(ranks.image_to_text, k)
        expected = of_caption if row.metric.startswith("image") else hits(ranks.text_to_image, k)
        assert row.value == pytest.approx(float(expected.mean()), abs=1e-12)
        assert row.split == "all, paper protocol"
    assert rows[0].value >= 0.8 and rows[0].hashes == {"protocol/all": "paper"}


def test_opening_a_set_does_not_overwrite_the_templates_of_another(tmp_path: Path) -> None:
    specs = [fakes.labelled(tmp_path / name) for name in ("a", "b")]
    (tmp_path / "b" / "zeroshot_classification_templates.txt").write_text("a drawing of {c}\n")
    replicas.pets(tmp_path)
    specs.append(f"pets:{tmp_path}")
    alone = [open_dataset(spec).texts("test", "prompts") for spec in specs]
    together = [open_dataset(spec) for spec in specs]
    assert [data.texts("test", "prompts") for data in together] == alone and alone[0] != alone[1]


def test_the_activation_matches_the_weights(light_tower: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"openai": {"quick_gelu": True}, "laion": {}}
    monkeypatch.setattr("open_clip.get_pretrained_cfg", lambda model, tag: tags[tag])

    def created(tag: str) -> nn.Module:
        return towers.create_model("light-48", tag, "model", custom_text=False, load=False)

    assert "QuickGELU" in repr(created("openai")) and "QuickGELU" not in repr(created("laion"))


def test_test_images_are_normalised_as_training_images(
    light_tower: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)  # used by no existing model
    monkeypatch.setattr("open_clip.get_pretrained_cfg", lambda model, tag: {"mean": mean, "std": std})
    config = settings(tmp_path, text="open_clip:light-48")
    config.model.image.name = "open_clip:light-48"
    config.model.image.pretrained = config.model.text.pretrained = "published"
    run = untrained(config)
    encoder, _ = from_checkpoint(run, torch.device("cpu"))
    inputs = clip.build_model(RunFolder(run).load_config(), pretrained=False).inputs
    assert (inputs.mean, inputs.std) == (mean, std)
    size = inputs.image_size
    pixels = torch.tensor([200, 100, 50], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, size, size)
    image = Image.new("RGB", (size, size), (200, 100, 50))
    torch.testing.assert_close(encoder.preprocess(image)[None], Normalise(inputs, torch.device("cpu"))(pixels))


def test_the_choice_of_the_probes_c_is_blind_to_the_test_split(tmp_path: Path) -> None:
    data = fakes.opened(fakes.labelled(tmp_path, classes=3, train=60, test=60), Labelled)
    features = {
        request: fakes.embeddings(60, seed, dim=8) + torch.eye(3, 8)[data.labels(request.split)]
        for seed, request in enumerate(LinearProbe().requests(data))
    }
    wrong_test = {request: x.flip(0) if request.split == "test" else x for request, x in features.items()}
    first, second = (LinearProbe().score(data, given) for given in (features, wrong_test))
    assert first.artifact == second.artifact and first.results[0].value != second.results[0].value


def test_retrieval_does_not_hold_the_whole_similarity_matrix() -> None:
    images, texts = 3_000, 15_000
    image, text, owner = fakes.embeddings(images, 0, dim=2), fakes.embeddings(texts, 1, dim=2), torch.arange(texts) // 5
    with Largest() as largest:  # type: ignore[no-untyped-call]
        recall_at_k(image, text, owner, 1)
    assert largest.elements < images * texts / 2
