"""NVIDIA GPUs: the driver and NVRTC through NVIDIA's `cuda.bindings`, imported when a device is opened."""
