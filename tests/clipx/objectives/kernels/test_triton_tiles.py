"""The Triton kernels on a machine without a GPU: results in Triton's interpreter, compilation for sm_80 and sm_90."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clipx.objectives import similarity
from clipx.objectives.similarity import Exclude, Reduction, log_sums, softmax_gradients
from clipx.utils.matmul import LOSS_PRECISIONS, loss_precision

INTERPRETED = Path(__file__).parents[3] / "helpers" / "interpreted_tiles.py"
SHARED_MEMORY = 99 * 1024  # bytes per block on sm_86, the smallest limit of all GPUs since sm_80
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@needs_triton
@pytest.mark.slow
def test_interpreted_kernels_match_stored_logits_and_tiles() -> None:
    # in a process of its own, because TRITON_INTERPRET must be set before the kernels are imported
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--noconftest", str(INTERPRETED)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stdout


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Compile each kernel instead of launching it, and collect the compiled kernels."""
    from triton.runtime.jit import JITFunction

    found: list[Any] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        found.append(run(self, *args, grid=grid, warmup=True, **options))

    monkeypatch.setattr(JITFunction, "run", compile_only)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return found


def resources(kernel: Any, cubin: Path) -> dict[str, int]:
    """Return what a compiled kernel needs: registers per thread, and bytes of stack and local memory for spills."""
    import triton

    cubin.write_bytes(kernel.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(n) for name, n in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", shown)}


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("sm", [80, pytest.param(90, marks=pytest.mark.long)])
@pytest.mark.parametrize("precision", LOSS_PRECISIONS)
def test_kernels_compile_without_spilled_registers(
    precision: str, sm: int, compiled: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from clipx.objectives.kernels import triton_tiles

    gpu = SimpleNamespace(
        get_current_device=lambda: sm,
        get_current_stream=lambda _: 0,
        get_current_target=lambda: GPUTarget("cuda", sm, 32),
    )
    monkeypatch.setattr(driver, "_active", gpu)
    monkeypatch.setattr(similarity, "triton_tiles", lambda image: triton_tiles)
    image, text = torch.zeros(2, 300, 512)
    label = torch.zeros(300, dtype=torch.int64)
    reductions = Reduction(1, Exclude(label)), Reduction(0, Exclude(label, equal=False))
    with loss_precision(precision):
        sums = log_sums(image, text, torch.ones(()), reductions)
        softmax_gradients((image, text, torch.ones(())), reductions, sums, list(sums))
    assert len(compiled) == 3
    for kernel in compiled[:2]:
        assert kernel.metadata.shared <= SHARED_MEMORY
        found = resources(kernel, tmp_path / "cubin")
        assert found["STACK"] == found["LOCAL"] == 0
        # all registers of a block fit into a multiprocessor
        assert found["REG"] * 32 * kernel.metadata.num_warps <= 65536
        tensor_cores = re.search(r"wgmma\.mma_async|mma\.sync", kernel.asm["ptx"])
        assert bool(tensor_cores) == (precision != "fp32")


@pytest.mark.parametrize(
    ("precision", "dtype", "E", "can_use_triton", "expected"),
    [
        ("bf16", torch.float32, 512, True, True),
        ("tf32", torch.float32, 1024, True, True),
        ("bf16", torch.float32, 512, False, False),
        ("fp32", torch.float32, 512, True, False),
        ("bf16", torch.float64, 512, True, False),
        ("bf16", torch.float32, 1025, True, False),
    ],
)
def test_kernels_are_used_only_where_they_help(
    precision: str, dtype: torch.dtype, E: int, can_use_triton: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "can_use_triton", lambda device: can_use_triton)
    if expected and find_spec("triton") is None:
        pytest.skip("triton is not installed")
    with loss_precision(precision):
        assert (similarity.triton_tiles(torch.zeros(2, E, dtype=dtype)) is not None) is expected
