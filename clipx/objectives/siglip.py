"""SigLIP: a sigmoid for every pair (Zhai et al. 2023, algorithm 1; a baseline of paper 3).

    L = -1/B sum_ij log sigmoid( y_ij (t s_ij + b) ),   y_ii = 1,  y_ij = -1 for i != j

with s = image @ text.T [B, B], t = 1/tau and the learned bias b = Embeddings.bias; t = 10 and b = -10 at the start.
Paper 3's code forgets to normalise the embeddings; here they come normalised.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.errors import UserError
from clipx.objectives.base import Term
from clipx.types import Embeddings, Progress


class SiglipTerm(Term):
    """Sum over all pairs, divided by B."""

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if embeddings.bias is None:
            raise UserError(
                "objective.siglip needs a learned bias of the logits, this model has none: set model.bias=-10"
            )
        logits = embeddings.scale * embeddings.image @ embeddings.text.T + embeddings.bias
        B = len(logits)
        y = 2 * torch.eye(B, dtype=logits.dtype, device=logits.device) - 1
        return -F.logsigmoid(y * logits).sum() / B, {}
