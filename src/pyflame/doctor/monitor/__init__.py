"""What GPUs, the processes on them and the host do: use, memory, power, clock, temperature, throttling, ECC.

`Sampler` takes one sample from AMD's amdsmi, NVIDIA's NVML and the kernel's files; `Monitor` takes them in a thread.
"""

from pyflame.doctor.monitor.sample import Gpu, Host, Process, Sample
from pyflame.doctor.monitor.sampler import Sampler
from pyflame.doctor.monitor.summary import GpuSummary, Summary
from pyflame.doctor.monitor.thread import Monitor, monitor

__all__ = ["Gpu", "GpuSummary", "Host", "Monitor", "Process", "Sample", "Sampler", "Summary", "monitor"]
