"""docs/library.md: its training loops run, on one process and on two; a term's error names the missing argument."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from clipx import objectives
from clipx.errors import UserError
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Progress
from tests.helpers.pairs import random_pairs

PAGE = (Path(__file__).parent.parent / "docs" / "library.md").read_text()
ONE_GPU, SEVERAL = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_names_of_the_reference_exist_and_are_documented() -> None:
    rows = re.findall(r"^\| `((?:clipx|evaluation)\.[\w.]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    named = [(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)]
    assert ("clipx.api", "compare") in named
    found = {f"{module}.{name}": getattr(import_module(module), name) for module, name in named}
    assert [name for name, value in found.items() if not value.__doc__] == []


def test_the_loop_on_one_gpu_trains(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    exec(ONE_GPU, namespace)
    assert re.match(r"\{'clip': [\d.]+, 'positive': -?[\d.]+\}", capsys.readouterr().out)


@pytest.mark.long
def test_the_loop_ends_in_the_same_weights_on_one_and_on_two_processes(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text(SEVERAL)
    printed = []
    for launcher in ([], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]):
        done = subprocess.run([sys.executable, *launcher, str(loop)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append([float(number) for number in re.findall(r"-?\d+\.\d+", done.stdout)])
    assert len(printed[0]) == 2
    assert printed[0] == pytest.approx(printed[1], abs=1e-4)


def embeddings(sample_id: torch.Tensor | None = None, label: torch.Tensor | None = None) -> Embeddings:
    return Embeddings(*random_pairs(4, 3), torch.tensor(10.0), sample_id, label)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("siglip", r"objective.siglip needs a learned logit bias: set temperature.bias .* Embeddings\(bias=...\)"),
        ("nuclr", r"objective.nuclr needs the position in the run: .*Progress\(step, "),
        ("sogclr", r"objective.sogclr keeps numbers of every pair \(sogclr_seen, .* rows=table.read\(ids\)"),
    ],
)
def test_a_term_without_its_input_names_it_in_the_error(term: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        objectives.build({term: {}}, num_samples=4)(embeddings())


@pytest.mark.parametrize("term", [name for name, term in objectives.TERMS.items() if not term.needs])
def test_other_terms_give_the_same_loss_without_ids_labels_and_progress(term: str) -> None:
    objective = objectives.build({term: {}}, num_samples=4)
    rows = SampleTable(objective.columns, 4, dtype=torch.float64).read(torch.arange(4))
    start = Progress(step=0, total_steps=1, epoch=0, total_epochs=1)
    zeros = torch.zeros(4, dtype=torch.int64)
    given = objective(embeddings(sample_id=torch.arange(4), label=zeros), rows, start).total
    assert float(objective(embeddings(), rows).total) == float(given)
