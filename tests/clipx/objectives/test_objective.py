"""What holds for every term by itself, as DDP and the log need it."""

import pytest
import torch

from clipx import objectives
from clipx.sample_table import SampleTable
from tests.clipx.objectives.pairs import START, embed, random_pairs


@pytest.mark.parametrize("term", objectives.TERMS)
def test_temperature_and_bias_get_a_gradient_so_that_ddp_finds_every_parameter(term: str) -> None:
    scale = torch.tensor(10.0, dtype=torch.float64, requires_grad=True)
    embeddings = embed(*random_pairs(6, 4), scale, [1, 1, 2, 0, 3, 2])
    bias = torch.tensor(-10.0, dtype=torch.float64, requires_grad=True)
    embeddings.bias = bias
    objective = objectives.build({term: {}}, num_samples=6)
    table = SampleTable(objective.columns, 6, dtype=torch.float64)
    objective(embeddings, table.read(embeddings.sample_id), START).total.backward()  # type: ignore[no-untyped-call]
    assert scale.grad is not None and bias.grad is not None
    assert (bias.grad != 0) == (term == "siglip")
