"""Sample table: float32 columns with a value per sample, sharded over the ranks by sample_id % (number of ranks).

A step reads the rows of its global batch with one all-reduce, and each rank writes the rows that it owns. A checkpoint
holds whole columns, so a run resumes on any number of ranks. 8 columns of 12 M samples take 384 MB over all ranks
(paper 3, appendix G).

No library fits: the sharded embedding tables of torchrec are trained by gradients, and their checkpoints depend on the
number of ranks. Here, the objective computes and writes the values.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clipx import distributed
from clipx.errors import UserError, one_line
from clipx.utils.device import on_host, to_device

Ids = npt.NDArray[np.int64]
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
QUANTILE_ROWS = 4096  # maximum number of rows for quantiles: enough for a figure, without sorting millions


class SampleTable:
    """Columns by name, each with an initial value. Every rank makes the same calls with the same arguments."""

    def __init__(
        self,
        columns: Mapping[str, float],
        num_samples: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`device` holds this rank's rows; the ids and rows of a step may be on another device."""
        self.columns = tuple(columns)
        self.num_samples = num_samples
        self.rank, self.world = distributed.rank(), distributed.world_size()
        own = len(range(self.rank, num_samples, self.world))
        initial = torch.tensor(list(columns.values()), dtype=dtype, device=device)
        self.values = initial[:, None].repeat(1, own)  # [columns, own]; sample i: index i // world on rank i % world
        self._asked: list[int] = []  # indices of the columns whose maxima were asked for
        self._largest: Tensor | None = None  # their maxima over all ranks; None: unknown since the last write

    def read(self, ids: Tensor, device: torch.device | None = None) -> dict[str, Tensor]:
        """Return column -> [B] for the global batch's `ids` (int64 [B], the same on every rank), on `device`.

        `device` is by default that of the ids. Ids in CPU memory are faster: others must be copied there.

        Raises UserError: an id is out of range, or occurs twice in the batch and would get two conflicting new values.
        """
        if not self.columns:
            return {}
        numbers = on_host(ids).numpy()
        self._check_ids(numbers)
        device = device or ids.device
        positions, index = self._own(numbers)
        rows = torch.zeros(len(self.columns), len(ids), dtype=self.values.dtype, device=device)
        rows[:, _on(device, positions)] = self.values[:, _on(self.values.device, index)].to(device)
        distributed.all_reduce_sum(rows)  # exact: each row has one owner, the others add zeros
        return dict(zip(self.columns, rows, strict=True))

    def write(self, ids: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Store column -> [B] for the global batch's ids; each rank keeps the rows that it owns.

        Raises UserError: a column has another shape than the ids.
        """
        if not self.columns:
            return
        assert rows.keys() == set(self.columns), "an objective writes every column of its terms"
        for column, values in rows.items():
            if values.shape != ids.shape:
                shapes = f"shape {list(values.shape)}, its ids {list(ids.shape)}"
                raise UserError(f"column {column} of the sample table has {shapes}; allowed: a value for each id")
        positions, index = self._own(on_host(ids).numpy())
        new = torch.stack([rows[column] for column in self.columns])
        self.values[:, _on(self.values.device, index)] = new[:, _on(new.device, positions)].to(self.values)
        self._largest = None

    def max(self, column: str) -> Tensor:
        """Return the maximum [] over all samples and ranks; samples not visited yet count with their initial value."""
        k = self.columns.index(column)
        if k not in self._asked:
            self._asked.append(k)
            self._largest = None
        if self._largest is None:  # all columns that were ever asked for, in one collective
            own = [self.values[k] for k in self._asked]  # an index that is a list would make a GPU wait
            self._largest = torch.stack([row.amax() if len(row) else row.new_full((), -torch.inf) for row in own])
            distributed.max_over_ranks_(self._largest)
        return self._largest[self._asked.index(k)]

    def quantiles(self) -> dict[str, list[float]]:
        """Return column -> `QUANTILES`, for the log, from at most QUANTILE_ROWS evenly spaced rows of this rank.

        A rank owns every world-th sample, so rank 0's rows represent all samples, without communication.
        """
        step = max(1, -(-self.values.shape[1] // QUANTILE_ROWS))
        sampled = self.values[:, ::step].float().cpu()
        levels = torch.tensor(QUANTILES)
        return {column: sampled[k].quantile(levels).tolist() for k, column in enumerate(self.columns)}

    def whole(self, copy: Callable[[Tensor], Tensor] = lambda own: own.to("cpu", copy=True)) -> dict[str, Tensor]:
        """Return column -> [n] on rank 0, in CPU memory, and {} on the others; every rank must call it.

        `copy` copies a column to CPU memory; saving reuses buffers for it.
        """
        if self.world == 1:
            return {column: copy(own) for column, own in zip(self.columns, self.values, strict=True)}
        most = -(-self.num_samples // self.world)
        columns = {}
        for column, own in zip(self.columns, self.values, strict=True):  # one at a time, to save rank 0's memory
            padded = torch.cat([own, own.new_zeros(most - len(own))])
            shards = distributed.gather_to_rank0(padded)
            if shards:
                interleaved = torch.stack([shard.cpu() for shard in shards], dim=1).flatten()
                columns[column] = copy(interleaved[: self.num_samples])
        return columns

    def load(self, path: Path) -> None:
        """Load this rank's rows from a file with the columns of `whole`, in a run with any number of ranks.

        Raises UserError: the file is missing, has other columns, or belongs to a data set of another size.
        """
        try:
            with safe_open(path, "pt") as file:
                names = set(file.keys())
                whole = {c: file.get_tensor(c) for c in self.columns if c in names}
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} holds no sample table: {one_line(error)}") from error
        if names != set(self.columns):
            columns = f"it has the columns {sorted(names)}, this run's objective needs {sorted(self.columns)}"
            raise UserError(f"{path} is from another objective: {columns}")
        for k, column in enumerate(self.columns):
            if whole[column].shape != (self.num_samples,):
                raise UserError(
                    f"{path} has {whole[column].numel()} rows, the data set has {self.num_samples} samples: "
                    "resuming needs the same data; give the new run another name="
                )
            self.values[k] = whole[column][self.rank :: self.world].to(self.values)
        self._largest = None

    def _check_ids(self, ids: Ids) -> None:
        ordered = np.sort(ids)
        if not len(ordered):
            return
        if ordered[0] < 0 or ordered[-1] >= self.num_samples:
            bad = ordered[0] if ordered[0] < 0 else ordered[-1]
            raise UserError(f"sample_id={bad} is out of range; allowed: 0..{self.num_samples - 1}, one for each pair")
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            raise UserError(
                f"sample_id={ordered[1:][twice][0]} is more than once in a batch; per-sample values "
                f"({', '.join(self.columns)}) need batches without repeats"
            )

    def _own(self, ids: Ids) -> tuple[Ids, Ids]:
        """Return where the ids that this rank owns are in the batch, and where their values are in `values`."""
        positions = np.flatnonzero(ids % self.world == self.rank)
        return positions, ids[positions] // self.world


def _on(device: torch.device, ids: Ids) -> Tensor:
    return to_device(torch.from_numpy(ids), device)
