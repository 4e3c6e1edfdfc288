"""Embeddings made elsewhere: read, trained on, evaluated, written by `clipx data embed`, and refused in one line."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

from cli.settings.compose import compose_run
from cli.train import train
from clipx.data.sources.embeddings import open_embeddings, write
from clipx.errors import UserError
from clipx.run.checkpoint import checkpoints
from evaluation.embedding.encoder import CPU, from_checkpoint, from_file
from tests.helpers.commands import clipx_here
from tests.helpers.folder import write_shards
from tests.helpers.runs import log, trained, weights

NAMES = ("img_emb", "text_emb")
SIZES = [3] * 11 + [7]  # rows of the parts: part 10 comes after part 9
TRAIN = """
recipe=embeddings arm=nuclr data.root=emb 'model.image.name="embeddings:6"' 'model.text.name="embeddings:4"'
model.embed_dim=8 model.image.head_width=8 model.text.head_width=8 train.epochs=null train.samples=64
train.batch_size=8 schedule.warmup_steps=0 name=given
""".replace("'", "").split()


def vectors(width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((sum(SIZES), width)).astype(np.float32)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a folder with emb/, as clip-retrieval writes it: images of width 6, texts of width 4 in half precision."""
    ends = np.cumsum(SIZES)[:-1]
    images, texts = np.split(vectors(6, 0), ends), np.split(vectors(4, 1).astype(np.float16), ends)
    captions = np.split(np.array([f"{'two' if i % 2 else 'a'} thing {i}" for i in range(sum(SIZES))]), ends)
    for name in (*NAMES, "metadata"):
        (tmp_path / "emb" / name).mkdir(parents=True)
    for part, (image, text, caption) in enumerate(zip(images, texts, captions, strict=True)):
        np.save(tmp_path / f"emb/img_emb/img_emb_{part}.npy", image)
        np.save(tmp_path / f"emb/text_emb/text_emb_{part}.npy", text)
        parquet.write_table(pa.table({"caption": caption}), tmp_path / f"emb/metadata/metadata_{part}.parquet")
    return tmp_path


def test_a_row_is_that_of_the_whole_set(made: Path) -> None:
    names = ("clip14", "e5")  # numbers in a name are not those of a part
    for old, new in zip(NAMES, names, strict=True):
        folder = (made / "emb" / old).rename(made / "emb" / new)
        for file in folder.iterdir():
            file.rename(folder / file.name.replace(old, new))
    rows = np.array([39, 0, 31, 2, 3, 39])
    source = open_embeddings(made / "emb", names)
    assert len(source) == 40 and source.captions(31) == ["two thing 31"]
    for side, expected in (("image", vectors(6, 0)), ("text", vectors(4, 1).astype(np.float16).astype(np.float32))):
        assert np.array_equal(source.features[side].take(rows).numpy(), expected[rows])


@pytest.mark.parametrize("name", ["._0.npz", "metadata/._metadata_0.parquet"])
def test_hidden_files_are_not_read(made: Path, name: str) -> None:
    """macOS writes a hidden ._NAME beside each NAME."""
    (made / "emb" / name).write_bytes(b"Mac OS X")
    assert len(open_embeddings(made / "emb", NAMES)) == sum(SIZES)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_arrays_of_npz_files_are_mapped_where_they_lie(
    tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, text = (np.asfortranarray(vectors(6, 0)) if order == "F" else vectors(6, 0)), vectors(4, 1)
    for part in (0, 1):
        np.savez(tmp_path / f"{'ab'[part]}.npz", l14_txt=text, b32_img=image + part, b32_txt=text + part)
    glob = Path.glob  # a file system lists files in any order
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: sorted(glob(folder, pattern), reverse=True))
    source = open_embeddings(tmp_path, ("b32_img", "b32_txt"))
    everything = np.arange(80)
    assert np.array_equal(source.features["image"].take(everything), np.concatenate([image, image + 1]))
    assert np.array_equal(source.features["text"].take(everything), np.concatenate([text, text + 1]))


def test_a_run_is_trained_resumed_evaluated_and_exported_but_embeds_no_images(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    config = compose_run([*TRAIN, "train.save_every=3", "data.keywords=[numbers]"])
    train(config)
    whole = weights(made / "runs/given/s0")
    for last in checkpoints(made / "runs/given/s0")[1:]:
        shutil.rmtree(last)
    trained(config)
    resumed = weights(made / "runs/given/s0")
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    done = clipx_here("eval", "runs/given/s0", "datasets=[held_out,embeddings:emb]", cwd=made)
    assert "retrieval embeddings/held_out" in done.stdout and "retrieval emb" in done.stdout
    write_shards(made / "test", 4)
    done = clipx_here("eval", "runs/given/s0", "datasets=[captions:test]", "workers=0", cwd=made, code=2)
    assert "has no tower that could embed new images or texts" in done.stderr
    clipx_here("export", "runs/given/s0", "out=heads.safetensors", cwd=made)
    file, (run, _) = from_file(made / "heads.safetensors"), from_checkpoint(made / "runs/given/s0", CPU)
    image, text = torch.tensor(vectors(6, 0)), torch.tensor(vectors(4, 1))
    assert torch.equal(file.image(image), run.image(image)) and torch.equal(file.text(text), run.text(text))
    assert torch.allclose(file.image(image).norm(dim=1), torch.ones(len(image)))


def test_embedded_pairs_train_the_same_heads_as_their_features(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path / "data/train", 24)
    common = """recipe=demo train.samples=48 train.batch_size=8 schedule.warmup_steps=0 data.workers=0
        model.image.frozen=true model.text.frozen=true data.features=true data.crop_scale=[1,1] model.embed_dim=8
        data.evaluation=[] data.captions=first log.geometry_every=2 log.geometry_on=train""".split()  # noqa: SIM905
    shards = ["data=shards", "data.root=data", "data.split=train"]
    monkeypatch.chdir(tmp_path)
    trained(compose_run([*common, *shards, "name=features"]))
    tokens = ["model.text.name=small:transformer", "model.text.trainable_blocks=1"]
    for refused in (["data.views=2"], tokens):  # a view is a random crop; others need one vector a sample
        done = clipx_here("data", "embed", *common, *shards, *refused, "out=emb", cwd=tmp_path, code=2)
        assert "no model.*.trainable_blocks, and data.views=null" in done.stderr
    done = clipx_here("data", "embed", *common, *shards, "out=emb", cwd=tmp_path)
    assert "emb: 24 pairs" in done.stdout
    widths = [np.load(tmp_path / f"emb/{name}/{name}_0.npy").shape[1] for name in NAMES]
    towers = [f'model.{s}.name="embeddings:{w}"' for s, w in zip(("image", "text"), widths, strict=True)]
    given = ["data=embeddings", "data.root=emb", "data.held_out=0", *towers]
    trained(compose_run([*common, *given, "name=given"]))
    runs = [tmp_path / "runs" / name / "s0" for name in ("features", "given")]
    geometry, of_given = ([row["geometry"] for row in log(run) if "geometry" in row] for run in runs)
    assert of_given == geometry != []
    expected, found = map(weights, runs)
    assert found.keys() == expected.keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


def test_texts_that_utf_8_cannot_hold_are_written_with_question_marks(tmp_path: Path) -> None:
    """Half of a surrogate pair in a .json, and a file name in another encoding."""
    metadata = {"image_path": ["n\udce9.jpg"], "caption": [" a \ud83d dog\n"]}
    write(tmp_path / "emb", [lambda rows: np.ones((len(rows), 2), np.float32)] * 2, metadata)
    assert open_embeddings(tmp_path / "emb", NAMES).captions(0) == ["a ? dog"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.root=nowhere", "data.root=nowhere"),
        ("data.image_column=clip", "data.image_column=clip names the folder"),
        ('model.image.name="embeddings:9"', "the image vectors of data.root have width 6; allowed: embeddings:6"),
        ('model.image.name="embeddings:x"', "expected embeddings:WIDTH"),
        ("model.image.frozen=false", "both towers frozen and named embeddings:WIDTH"),
        ("model.points.kernel=imq", "one vector a sample"),
        ("data=shards", "need data=embeddings"),
    ],
)
def test_a_wrong_setting_is_refused(made: Path, setting: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setattr("cli.train.check_memory", lambda *_: None)  # takes longer than all else here
    kept = [argument for argument in TRAIN if argument.partition("=")[0] != setting.partition("=")[0]]
    with pytest.raises(UserError, match=message):
        train(compose_run([*kept, setting]))


TEXT = "text_emb/text_emb_3.npy"  # a part of three vectors
Spoil = Callable[[Path], object]  # spoils a folder of embeddings


def with_text(part: np.ndarray) -> Spoil:
    return lambda root: np.save(root / TEXT, part, allow_pickle=True)


def with_arrays(**arrays: np.ndarray) -> Spoil:
    return lambda root: np.savez(root / "0.npz", **arrays)  # type: ignore[arg-type]


SPOILT: list[tuple[Spoil, str]] = [  # and part of the message
    (lambda root: (root / "text_emb/text_emb_11.npy").unlink(), "40 images, 33 texts"),
    (lambda root: (root / "metadata/metadata_2.parquet").unlink(), "40 images, 40 texts, 37 rows of metadata"),
    # each side lacks another part: the rows would be no pairs
    (
        lambda root: (root / "text_emb/text_emb_11.npy").rename(root / "text_emb/text_emb_12.npy"),
        "only one of img_emb and text_emb has part 11, 12",
    ),
    (with_text(np.ones((2, 4), np.float16)), r"text_emb_3\.npy 2; the rows of both must be pairs"),
    (with_text(np.array([["a"] * 4] * 3, object)), r"text_emb_3\.npy is no array of numbers"),
    (with_text(np.ones((3, 4), int)), r"text_emb_3\.npy holds int64 \[3, 4\]"),
    (with_text(np.ones((3, 4), np.longdouble)), r"text_emb_3\.npy holds float128 \[3, 4\]"),
    (with_text(np.ones((3, 5), np.float16)), r"text_emb_3\.npy has vectors of width 5, .*text_emb_0\.npy of 4"),
    (with_text(np.full((3, 4), np.inf, np.float16)), "of text_emb has a value that is not finite"),
    (
        lambda root: (root / TEXT).write_bytes((root / TEXT).read_bytes()[:-3]),
        r"text_emb_3\.npy is no array of numbers",
    ),
    (lambda root: (root / TEXT).write_bytes(b""), r"text_emb_3\.npy is no array of numbers"),
    (
        lambda root: np.savez_compressed(root / "0.npz", img_emb=vectors(6, 0), text_emb=vectors(4, 1)),
        r"img_emb is compressed; write it with numpy.savez instead$",
    ),
    (with_arrays(img_emb=np.zeros((0, 6)), text_emb=np.zeros((0, 4))), "0 images, 0 texts"),
    (with_arrays(b32_img=vectors(6, 0)), r"^\S*0\.npz has no array img_emb; allowed: b32_img$"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT, ids=[message for _, message in SPOILT])
def test_a_spoilt_embedding_is_one_line(made: Path, spoil: Spoil, message: str) -> None:
    spoil(made / "emb")
    with pytest.raises(UserError, match=message):
        open_embeddings(made / "emb", NAMES)
