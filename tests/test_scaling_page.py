"""docs/scaling.md agrees with the code in its forecasts, formulas and assumptions, and its settings exist."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cli.reproduce.cost import DEVICE
from cli.settings.compose import compose_run
from clipx.config.presets import PAIRS, num_pairs
from clipx.config.schema import RunConfig
from clipx.config.setting import settings_of
from clipx.run.checkpoint import checkpoints, step_of
from clipx.run.folder import RunFolder
from clipx.train import Outcome, fit
from clipx.training import forecast as assumed
from clipx.training.cost import StepCost, count_step
from clipx.training.devices import DEVICES
from clipx.training.forecast import Forecast, step_time, total_steps
from clipx.training.loader_rate import LoaderRate
from tests.helpers.runs import prepared, trained

PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
TEXT = PAGE.read_text()
INPUTS = {name: float(value) for name, value in re.findall(r"^\| (\w+) \| ([\d.e]+) \|", TEXT, re.MULTILINE)}
GPUS = (1, 8, 64)
ROWS = re.findall(r"^\| (\w+_(?:cc3m|cc12m|mscoco|datacomp)) \| (\w*) \|(.*)\|$", TEXT, re.MULTILINE)
FULL_SCALE = ["clip_reg_cc3m", "margin_mscoco", "counting_datacomp", "nuclr_cc3m", "nuclr_cc12m", "gap_mscoco"]
FULL_SCALE += ["gap_dynamics_mscoco", "gap_init_mscoco", "wpse_cc3m", "wpse_cc12m"]
_counted: dict[tuple[str, int], StepCost] = {}  # (settings, processes) -> cost; kept, because a count takes a second


def rounded(value: float) -> str:
    """Return a number as the page prints it: three significant digits below 100, a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def counted(config: RunConfig, processes: int) -> StepCost:
    key = repr([config.model, [*config.objective], config.train]), processes
    if key not in _counted:
        _counted[key] = count_step(config, processes, on_gpu=True)
    return _counted[key]


def cells(name: str, arm: str, of_core: str) -> list[str]:
    """Return the cells of an arm with 1, 8 and 64 GPUs: GB per GPU, then GPU-hours on A100, then GPU-hours on H100.

    Then `of_core`, the images/s of a core that the page gives, and with it the GPU-hours of 8 H100 and their loaders.
    "-" where the batch cannot be split evenly. "*" marks more than the usable memory of an 80 GB GPU.
    """
    config = compose_run([f"recipe={name}", *([f"arm={arm}"] if arm else [])])
    possible = [N for N in GPUS if config.train.batch_size % N == 0]
    memory, hours = [], []
    for N in possible:
        peak = counted(config, N).peak
        memory.append(rounded(peak / 1e9) + "*" * (peak > assumed.USABLE * 80e9))
    missing = ["-"] * (len(GPUS) - len(possible))
    for device in (DEVICES["A100"], DEVICES["H100"]):
        assert device.memory == 80e9
        for N in possible:
            cost = counted(config, N)
            found = Forecast(config, N, device, cost, step_time(config, cost, N, device))
            hours.append(rounded(gpu_hours(found, found.time.total)))
        hours += missing
    cost = counted(config, 8)
    found = Forecast(config, 8, DEVICES["H100"], cost, step_time(config, cost, 8, DEVICES["H100"]))
    rate = LoaderRate(config, float(of_core.replace("-", "inf")))
    waiting = gpu_hours(found, rate.step(8, found.time.total))
    return [*memory, *missing, *hours, of_core, rounded(waiting)]


def gpu_hours(found: Forecast, seconds: float) -> float:
    """Return the GPU-hours of a run whose steps take so long."""
    assert found.steps is not None
    return found.processes * found.steps * seconds / 3600


@pytest.mark.long
def test_the_table_of_the_page_is_the_forecast_of_every_recipe() -> None:
    assert [name for name, _, _ in ROWS] == FULL_SCALE
    for name, arm, shown in ROWS:
        found = [cell.strip() for cell in shown.split("|")]
        assert found == cells(name, arm, found[-2]), name


def test_the_assumptions_of_the_page_are_those_of_the_forecast() -> None:
    shares = {"u": assumed.TOWER_SHARE, "u32": assumed.OBJECTIVE_SHARE, "G": assumed.PER_MACHINE}
    assert shares | {"b_out": assumed.NETWORK, "m": assumed.USABLE} == {k: INPUTS[k] for k in (*shares, "b_out", "m")}
    assert INPUTS["b_in"] == pytest.approx(assumed.LINK_SHARE, abs=0.005)
    devices = re.findall(r"^\| ([\w-]+) \| (\d+) \| ([\d.]+) \| (\d+) \| (\d+) \|$", TEXT, re.MULTILINE)
    assert {name: tuple(map(float, numbers)) for name, *numbers in devices} == {
        name: (d.bf16 / 1e12, d.fp32 / 1e12, d.memory / 1e9, d.link / 1e9) for name, d in DEVICES.items()
    }


@pytest.mark.parametrize(("N", "precision"), [(1, "bf16"), (2, "tf32"), (8, "fp32"), (64, "bf16")])
def test_the_forecast_time_of_a_step_follows_the_formulas_of_the_page(N: int, precision: str) -> None:
    i, gpu = INPUTS, DEVICES["A100"]
    B, E, p, F, objective = 2048, 1536, 1.5e8, 2.6e14, 8 * 2048**2 * 1536
    config = compose_run(["recipe=wpse_cc12m", "arm=imq", f"train.precision={precision}"])
    found = step_time(config, StepCost(int(F / N), objective // N, 0, int(p), E, {}), N, gpu)
    M, k = max(1, N // int(i["G"])), min(N, int(i["G"]))
    P = {"bf16": gpu.bf16, "tf32": gpu.bf16 / 2, "fp32": gpu.fp32}[precision]
    g = 3 * B * E * 4 * (N - 1) / N
    expected = [
        F / (N * P * i["u"]),
        objective / (N * gpu.fp32 * i["u32"]),
        (2 * (k - 1) / k * 4 * p + g) / (gpu.link * 2 / 3) if N > 1 else 0.0,
        (2 * (M - 1) / M * 4 * p + g) / i["b_out"] if M > 1 else 0.0,
    ]
    assert [found.towers, found.objective, found.links, found.network] == pytest.approx(expected, rel=1e-6)
    assert found.total == pytest.approx(sum(expected), rel=1e-6)


def test_the_example_of_the_page_is_the_forecast() -> None:
    config = compose_run(["recipe=wpse_cc12m", "arm=imq", "data.root=x"])
    plain = compose_run(["recipe=wpse_cc12m", "arm=clip", "data.root=x"])
    whole = count_step(config)
    assert f"a WPSE step is {whole.tower_flops / count_step(plain).tower_flops:.3f} of a CLIP step" in TEXT
    share = replace(whole, tower_flops=whole.tower_flops // 64, objective_flops=whole.objective_flops // 64)
    found = Forecast(config, 64, DEVICES["H100"], share, step_time(config, share, 64, DEVICES["H100"]))
    milliseconds = [rounded(1e3 * t) for t in (found.time.towers, found.time.links, found.time.network)]
    assert "takes {} ms in the towers, {} ms in the links and {} ms in the network".format(*milliseconds) in TEXT
    assert f"{rounded(found.images_per_s)} images/s, {rounded(found.images_per_s / 64)} for each GPU" in TEXT
    n = num_pairs(config)
    assert n is not None and f"{total_steps(config, n):,} steps" in TEXT
    assert f"12 p bytes, {12 * whole.num_trainable / 1e9:.2f} GB" in TEXT
    columns = f"per column: 3 for SogCLR, 5 for NUCLR ({12 * n / 1e9:.2f} and {20 * n / 1e9:.2f} GB on CC12M)"
    assert columns in " ".join(TEXT.split())


@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_a_run_is_copied_and_restored_as_the_page_shows(tmp_path: Path) -> None:
    """A second copy that ends after its first pass leaves no half checkpoint."""
    beside, restore = (block for block in re.findall(r"```\n(.*?)```", TEXT, re.DOTALL) if "rsync" in block)
    run, copy = trained(prepared(tmp_path, save_every=2)), tmp_path / "copy"
    (tmp_path / "runs/demo").mkdir()
    run.rename(tmp_path / "runs/demo/s0")
    once = beside.replace("while sleep 600; do", "if true; then").replace("done", "fi").replace("COPY", str(copy))

    def shell(script: str) -> None:
        subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True)

    shell(once)
    config = RunFolder(tmp_path / "runs/demo/s0").config
    new = tmp_path / "runs/demo/s0/checkpoints/step_00000006"
    shutil.copytree(new.with_name("step_00000004"), new)
    shell(once.replace("&& rsync", "&& true"))  # interrupted between its two passes
    assert not (copy / "checkpoints/step_00000006/checkpoint.json").exists()
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "runs/demo").mkdir(parents=True)
    shell(restore.replace("COPY", str(copy)))
    assert len(checkpoints(tmp_path / "runs/demo/s0")) == 3
    config.train.epochs = 3
    assert fit(config, tmp_path / "runs/demo/s0") is Outcome.FINISHED
    assert step_of(checkpoints(tmp_path / "runs/demo/s0")[-1]) == 6


def test_settings_and_the_assumptions_of_dry_runs_are_those_of_the_code() -> None:
    keys = set(re.findall(r"`((?:train|data|log|launch)\.\w+)", TEXT))
    assert len(keys) >= 12
    assert keys <= settings_of(RunConfig).keys()
    assert f"assumes {PAIRS['cc12m']:,} pairs of CC12M (paper 3) and an {DEVICE}" in TEXT
