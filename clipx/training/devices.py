"""GPUs by name: FLOP/s, memory and link bandwidth from the data sheets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A GPU. Peaks are dense, without sparsity."""

    bf16: float  # FLOP/s of bf16 and fp16 with float32 accumulation; the TF32 peak is half of it on all GPUs here
    fp32: float  # FLOP/s
    memory: float  # bytes
    link: float  # bytes/s in one direction to the other GPUs of a machine: NVLink, or 16 lanes of PCIe 4.0
    cuda_names: tuple[str, ...]  # as torch.cuda.get_device_name returns them

    def peak(self, precision: str) -> float:
        """Return the peak FLOP/s at `precision`, a value of `train.precision`."""
        return {"fp32": self.fp32, "tf32": self.bf16 / 2}.get(precision, self.bf16)


# NVIDIA's data sheets and white papers; A100, H100 and H200: SXM. H100 and H200 as PCIe cards have other peaks.
DEVICES = {
    "A100-40": Device(312e12, 19.5e12, 40e9, 300e9, ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB")),
    "A100": Device(312e12, 19.5e12, 80e9, 300e9, ("NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB")),
    "H100": Device(989e12, 67e12, 80e9, 450e9, ("NVIDIA H100 80GB HBM3",)),
    "H200": Device(989e12, 67e12, 141e9, 450e9, ("NVIDIA H200",)),
    "L40S": Device(362e12, 91.6e12, 48e9, 32e9, ("NVIDIA L40S",)),
    "RTX4090": Device(165e12, 82.6e12, 24e9, 32e9, ("NVIDIA GeForce RTX 4090",)),
}
