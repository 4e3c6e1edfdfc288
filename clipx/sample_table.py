"""Per-sample values: float32 columns of length n, sharded by sample_id % world over the ranks.

A step reads the rows of its global batch with one all-reduce and writes those that it owns; a checkpoint
holds whole columns, so that a run resumes on any number of ranks. 8 columns of 12 M samples: 384 MB over
all ranks (paper 3, appendix G).
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from clipx import distributed
from clipx.errors import UserError, one_line

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
QUANTILE_ROWS = 4096  # rows that quantiles are taken from: enough for a figure, no sorting of millions


class SampleTable:
    """Columns by name, each with its initial value. Every rank makes the same calls with the same arguments."""

    def __init__(
        self,
        columns: Mapping[str, float],
        num_samples: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Args: `device` is where this rank's rows live; ids and rows of a step may be on another one."""
        self.columns = tuple(columns)
        self.num_samples = num_samples
        self.rank, self.world = distributed.rank(), distributed.world_size()
        own = len(range(self.rank, num_samples, self.world))
        initial = torch.tensor(list(columns.values()), dtype=dtype, device=device)
        self.values = initial[:, None].repeat(1, own)  # [C, own]; column of sample i is i // world
        self._largest: dict[int, float] = {}  # of own rows, for the columns that were asked for

    def read(self, ids: Tensor) -> dict[str, Tensor]:
        """column -> [B] for the global batch's `ids` (int64 [B], the same on every rank), on the ids' device.

        Raises:
            UserError: an id out of range, or twice in the batch: its two new values would exclude each other.
        """
        if not self.columns:
            return {}
        self._check(ids)
        at, where = self._own(ids)
        rows = torch.zeros(len(self.columns), len(ids), dtype=self.values.dtype, device=ids.device)
        rows[:, at] = self.values[:, where].to(ids.device)
        distributed.all_reduce_sum(rows)  # each row has one owner, the others add zeros: exact
        return dict(zip(self.columns, rows, strict=True))

    def write(self, ids: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Takes over column -> [B] for the global batch's ids; each rank keeps the rows that it owns."""
        if not self.columns:
            return
        assert rows.keys() == set(self.columns), "an objective writes every column of its terms"
        at, where = self._own(ids)
        if not len(at):
            return
        new = torch.stack([rows[column] for column in self.columns])[:, at].to(self.values)
        self._update_largest(self.values[:, where], new)
        self.values[:, where] = new

    def max(self, column: str) -> float:
        """The largest value over all samples and ranks; those not visited yet count with their initial value."""
        k = self.columns.index(column)
        if k not in self._largest:
            self._largest[k] = float(self.values[k].max()) if self.values.shape[1] else -float("inf")
        return distributed.all_reduce_max(self._largest[k])

    def quantiles(self) -> dict[str, list[float]]:
        """column -> `QUANTILES` of at most 4096 of this rank's rows, evenly spaced in id; for the log.

        A rank's rows are every world-th sample, so rank 0's stand for all without communication.
        """
        step = max(1, -(-self.values.shape[1] // QUANTILE_ROWS))
        some = self.values[:, ::step].float().cpu()
        points = torch.tensor(QUANTILES)
        return {column: some[k].quantile(points).tolist() for k, column in enumerate(self.columns)}

    def whole(self) -> dict[str, Tensor]:
        """column -> [n] on the CPU of rank 0, nothing on the others; every rank must call it."""
        most = -(-self.num_samples // self.world)
        columns = {}
        for column, own in zip(self.columns, self.values, strict=True):
            padded = torch.cat([own, own.new_zeros(most - len(own))])
            parts = distributed.gather_to_rank0(
                padded
            )  # one column at a time: rank 0 has no room for all of them twice
            if parts:
                columns[column] = torch.stack([p.cpu() for p in parts], dim=1).flatten()[: self.num_samples].clone()
        return columns

    def load(self, path: Path) -> None:
        """Takes this rank's rows from a file that `save` wrote, whatever number of ranks that was.

        Raises:
            UserError: no such file, other columns, or a data set of another size.
        """
        try:
            with safe_open(path, "pt") as file:
                names = set(file.keys())
                whole = {c: file.get_tensor(c) for c in self.columns if c in names}
        except Exception as error:  # safetensors' own error type
            raise UserError(f"{path} holds no sample table: {one_line(error)}") from error
        if names != set(self.columns):
            columns = f"it has the columns {sorted(names)}, this run's needs {sorted(self.columns)}"
            raise UserError(f"{path} is of another objective: {columns}")
        for k, column in enumerate(self.columns):
            if whole[column].shape != (self.num_samples,):
                raise UserError(
                    f"{path} has {whole[column].numel()} rows, the data set has {self.num_samples} samples: "
                    "resume needs the same data; give the new run another name="
                )
            self.values[k] = whole[column][self.rank :: self.world].to(self.values)
        self._largest.clear()

    def _check(self, ids: Tensor) -> None:
        ordered = ids.cpu().sort().values
        if not len(ordered):
            return
        if ordered[0] < 0 or ordered[-1] >= self.num_samples:
            bad = int(ordered[0] if ordered[0] < 0 else ordered[-1])
            raise UserError(f"sample_id={bad} is out of range; allowed: 0..{self.num_samples - 1}, one for each pair")
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            raise UserError(
                f"sample_id={int(ordered[1:][twice][0])} is more than once in a batch; per-sample values "
                f"({', '.join(self.columns)}) need batches without repeats"
            )

    def _own(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Positions in the batch of the ids that this rank owns (ids' device), and their places in `values`."""
        at = (ids % self.world == self.rank).nonzero().squeeze(1)
        return at, (ids[at] // self.world).to(self.values.device)

    def _update_largest(self, old: Tensor, new: Tensor) -> None:
        """Keeps maxima without a pass over all rows, unless a row that held the maximum has shrunk."""
        for k, largest in tuple(self._largest.items()):
            highest = float(new[k].max())
            if highest >= largest:
                self._largest[k] = highest
            elif float(old[k].max()) == largest:
                del self._largest[k]


def save(path: Path, columns: dict[str, Tensor]) -> None:
    """Writes what `SampleTable.whole` gave."""
    save_file(columns, path)
