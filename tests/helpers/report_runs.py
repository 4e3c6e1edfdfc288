"""Write synthetic run directories, with the files that training and evaluation write."""

import base64
import json
import math
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from tests.helpers.folder import COLOURS, jpeg
from tests.helpers.synthetic import result

CLASSES = ["circle", "square", "triangle", "star"]
VALUES = {0: 0.90, 1: 0.94}  # zero-shot accuracy by seed


def config(name: str, seed: int) -> dict[str, Any]:
    return {
        "name": name,
        "seed": seed,
        "recipe": "demo",
        "claims": ["clip/colour"],
        "data": {"name": "scenes", "source": "scenes"},
        "model": {"image": {"name": "open_clip:tiny_vit"}, "text": {"name": "open_clip:tiny_text"}},
        "objective": {"clip": {}, "positive": {"weight": 0.1}},
        "temperature": {"kind": "learned", "tau": 0.07},
        "train": {"samples": 25600, "batch_size": 128},
    }


def log_lines(steps: int, speed: float = 0.02) -> list[dict[str, Any]]:
    """Return lines of log.jsonl in which loss and tau fall exponentially: the loss at the rate `speed` per step."""
    lines = []
    for step in range(10, steps + 1, 10):
        tau = 0.07 * math.exp(-step / 90)
        loss = 0.4 + 4.4 * math.exp(-step * speed) + 0.05 * math.sin(step)
        lines.append({
            "step": step, "epoch": 0, "samples": 128 * step, "loss": loss, "terms": {"clip": loss},
            "scale": 1 / tau, "tau": tau, "lr": 1e-3, "grad_norm": 1.0,
            "images_per_s": 512.0, "data_wait": 0.01, "time": "2026-01-01T00:00:00",
        })  # fmt: skip
    return lines


def row(task: str, dataset: str, metric: str, value: float, seed: int, **changes: Any) -> dict[str, Any]:
    """Return a line of results.jsonl."""
    hashes = {"checkpoint": f"c0ffee{seed}", "transform": "7a45f0", "templates": "7e3b1a"}
    own = {"chance": 0.25, "model": f"demo/s{seed} step 200", "hashes": hashes}
    return vars(result(task, dataset, metric, value, seed)) | own | changes


def rows(seed: int) -> list[dict[str, Any]]:
    value = VALUES.get(seed, 0.9)
    return [
        row("zeroshot", "scenes_shape", "top1", value, seed),
        row("zeroshot", "scenes_shape", "top5", 1.0, seed, chance=None),
        row("linear_probe", "scenes_shape", "top1", 0.97 + seed / 100, seed),
        row("retrieval", "scenes_captions", "image_to_text_recall@1", 0.41 + seed / 50, seed, chance=0.001),
        row("retrieval", "scenes_captions", "text_to_image_recall@1", 0.38 - seed / 50, seed, chance=0.001),
        row("pairs", "scenes_pairs", "pair_accuracy", 0.24, seed, chance=0.25, low=0.22, high=0.26),
    ]


def picture(number: int) -> str:
    content = jpeg(COLOURS[number % len(COLOURS)], 24)
    return "data:image/jpeg;base64," + base64.b64encode(content).decode()


def retrieval(caption: str) -> dict[str, Any]:
    to_image, to_text = [], []
    for query in range(8):
        best = query % 4
        similarities = [0.52 - 0.04 * rank for rank in range(5)]
        to_image.append({
            "caption": f"{caption} {query}", "rank": best + 1,
            "images": [{"src": picture(query + rank - best), "similarity": s,
                        "correct": rank == best} for rank, s in enumerate(similarities)],
        })  # fmt: skip
        to_text.append({
            "src": picture(query), "rank": best + 1,
            "captions": [{"text": f"{caption} {query + rank - best}", "similarity": s,
                          "correct": rank == best} for rank, s in enumerate(similarities)],
        })  # fmt: skip
    return {"kind": "retrieval", "text_to_image": to_image, "image_to_text": to_text}


def artifacts(caption: str) -> dict[str, dict[str, Any]]:
    cells = [[true, guess, 250 - 30 * true if true == guess else 10 * true] for true in range(4) for guess in range(4)]
    return {
        "zeroshot-scenes_shape": {"kind": "confused", "classnames": CLASSES, "cells": cells},
        "retrieval-scenes_captions": retrieval(caption),
    }


def write_run(
    root: Path,
    name: str = "demo",
    seed: int = 0,
    *,
    results: list[dict[str, Any]] | None = None,
    caption: str = "two large red circles left of a small blue star",
    with_artifacts: bool = True,
) -> Path:
    """Write a finished run; return its directory. `results` are lines of results.jsonl; None: `rows(seed)`."""
    folder = root / name / f"s{seed}"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config(name, seed))))
    write_lines(folder / "log.jsonl", log_lines(200, 0.02 + 0.004 * seed))
    write_lines(folder / "results.jsonl", rows(seed) if results is None else results)
    environment = {"packages": {"torch": "2.6.0", "clipx": "0.1.0"}, "git_commit": "abc1234", "device": "cpu"}
    (folder / "environment.json").write_text(json.dumps(environment))
    for stem, artifact in artifacts(caption).items() if with_artifacts else ():
        (folder / "artifacts").mkdir(exist_ok=True)
        (folder / "artifacts" / f"{stem}.json").write_text(json.dumps(artifact))
    return folder


def write_lines(file: Path, lines: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
