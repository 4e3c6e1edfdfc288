"""Push a model to the Hugging Face hub in open_clip's layout."""

import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]
from huggingface_hub.utils.tqdm import disable_progress_bars
from open_clip.constants import HF_CONFIG_NAME, HF_SAFE_WEIGHTS_NAME
from safetensors.torch import save_file

from cli.export.card import write_card
from cli.export.weights import OpenClipModel
from clipx.errors import Fault, UserError
from clipx.models.towers.hub_weights import PREFIX, REPOSITORY
from clipx.utils.hub import reachable

LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")  # an identifier of the hub; the hub checks it against its list
CARD = "README.md"
REASON = 200  # largest number of characters of the hub's answer in a message


@dataclass(frozen=True)
class Target:
    """Where to push a model."""

    repository: str  # USER/NAME
    licence: str
    private: bool  # of a new repository
    token: str


def target(repository: str, licence: str, private: bool) -> Target:
    """Check the arguments before a model is built.

    Raises UserError: not USER/NAME, no licence, no token, or the hub cannot be reached.
    """
    if not REPOSITORY.fullmatch(repository):
        raise UserError(f"hub={repository} must be USER/NAME")
    if not LICENCE.fullmatch(licence.lower()):
        given = f"licence={licence} is no identifier" if licence else "licence= is missing"
        raise UserError(f"hub={repository}: {given}; give one of the hub's, such as licence=apache-2.0, mit or other")
    if not (token := get_token()):
        raise UserError(f"hub={repository} needs a token that may write: run `hf auth login` or set HF_TOKEN")
    if not reachable():
        raise UserError(f"hub={repository}: {constants.ENDPOINT} cannot be reached; out=FILE.safetensors needs no hub")
    return Target(repository, licence.lower(), private, token)


def push(place: Target, model: OpenClipModel, run: Path, averaged: bool) -> None:
    """Create the repository if it is missing, write three files in one commit, and print how to load the model.

    The files are the weights, open_clip_config.json and the model card README.md. Other files stay as they are.

    Raises UserError: the hub refuses token, repository or licence. Raises Fault: the upload fails otherwise.
    """
    card = write_card(place.repository, place.licence, model, run, averaged)
    config = {"model_cfg": model.model_config, "preprocess_cfg": model.preprocess_config}
    if not sys.stderr.isatty():
        disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / HF_SAFE_WEIGHTS_NAME
        save_file(model.weights, weights)
        contents = {
            HF_SAFE_WEIGHTS_NAME: weights,
            HF_CONFIG_NAME: json.dumps(config, indent=4).encode(),
            CARD: card.encode(),
        }
        files = [CommitOperationAdd(name, content) for name, content in contents.items()]
        api = HfApi(token=place.token, library_name="clipx")
        try:
            _check_card(card)  # before a repository is created
            page = api.create_repo(place.repository, private=place.private, exist_ok=True)
            api.create_commit(place.repository, files, commit_message=f"clipx export, step {model.step}")
        except Exception as error:  # the hub's client raises many types
            _refuse(place, error)
    name = f"{PREFIX}{place.repository}"
    print(page)
    if model.module:
        print(f"import {model.module}  # defines its image tower")
    print(f"open_clip.create_model_from_pretrained({name!r})", f"clipx eval model={name} datasets=[wds:DIR]", sep="\n")


def _check_card(card: str) -> None:
    """Raise ValueError if the hub refuses the card's metadata."""
    given = {"repoType": "model", "content": card}
    answer = get_session().post(f"{constants.ENDPOINT}/api/validate-yaml", json=given, headers={"Accept": "text/plain"})
    if answer.status_code == 400:
        raise ValueError(answer.text)


def _refuse(place: Target, error: Exception) -> NoReturn:
    """Raise UserError for what the user can change, else Fault."""
    setting = f"hub={place.repository}"
    status = error.response.status_code if isinstance(error, HfHubHTTPError) and error.response is not None else 0
    if status == 401:
        raise UserError(f"{setting}: the hub does not accept the token; run `hf auth login` or set HF_TOKEN") from error
    if status == 403:
        raise UserError(
            f"{setting}: the token may not write there; give your user name or organisation, and a write token"
        ) from error
    answer = error.server_message if isinstance(error, HfHubHTTPError) else None
    reason = " ".join((answer or str(error) or type(error).__name__).split())[:REASON]
    if status == 400 or isinstance(error, ValueError):
        raise UserError(
            f"{setting} licence={place.licence}: the hub refuses the repository's name or the licence ({reason})"
        ) from error
    raise Fault(f"{setting}: the upload failed ({reason}); run the command again") from error
