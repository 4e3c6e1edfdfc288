"""Groups of samples: captions of one image, images of one content, and sources without groups."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clipx.config.schema import DataConfig, ScenesConfig, TrainConfig
from clipx.data.scenes.samples import content_of, training_sample
from clipx.errors import UserError
from clipx.types import Batch
from tests.helpers.annotation_files import write_table
from tests.helpers.folder import COLOURS
from tests.helpers.loading import load


def batches(config: DataConfig, needs: tuple[str, ...] = ("group",)) -> list[Batch]:
    """Return the batches of two epochs."""
    return [batch for batch, _ in load(config, TrainConfig(epochs=2, batch_size=5), needs=needs)]


@pytest.mark.parametrize("cache", ["none", "memory"])
def test_captions_of_one_image_form_a_group(tmp_path: Path, cache: str) -> None:
    config = write_table(tmp_path)
    config.cache = cache
    found = batches(config)
    assert len(found) == 6
    for batch in found:
        assert batch.group is not None
        image = batch.sample_id % len(COLOURS)
        same_image, same_group = image[:, None] == image, batch.group[:, None] == batch.group
        assert torch.equal(same_image, same_group)
    assert all(batch.group is None for batch in batches(config, needs=()))


@pytest.mark.parametrize(
    "scenes", [ScenesConfig(num_train=300, false_negatives=0.5), ScenesConfig(num_train=200, contents=20)]
)
def test_scenes_of_one_content_form_a_group(scenes: ScenesConfig) -> None:
    group = content_of(scenes)
    keys = [training_sample(scenes, i).scene.content.key() for i in range(scenes.num_train)]
    expected = np.array([[a == b for b in keys] for a in keys])
    assert np.array_equal(group[:, None] == group, expected)
    assert expected.sum() > scenes.num_train, "no content recurs"
    assert sorted(set(group.tolist())) == list(range(group.max() + 1))


def test_batches_of_scenes_contain_the_groups(tmp_path: Path) -> None:
    scenes = ScenesConfig(num_train=40, image_size=32, contents=5, test_images=1, test_pairs=1)
    config = DataConfig(name="s", source="scenes", root=str(tmp_path / "scenes"), workers=0, scenes=scenes)
    group = torch.from_numpy(content_of(scenes)).long()
    for batch in batches(config):
        assert batch.group is not None and torch.equal(batch.group, group[batch.sample_id])


@pytest.mark.parametrize("source", ["shards", "webdataset"])
def test_a_source_without_groups_is_refused_before_training(shards: Path, source: str) -> None:
    config = DataConfig(name="t", source=source, root=str(shards), workers=0)
    config.num_samples, config.urls = 16, [str(shards / "train" / "00000.tar")]
    message = rf"no two samples of data.source={source} share .*; use data\.captions=each \(folder, coco, "
    with pytest.raises(UserError, match=message):
        batches(config)
