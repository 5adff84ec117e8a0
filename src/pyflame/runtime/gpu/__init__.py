"""What AMD and NVIDIA GPUs share: memory, streams, kernels, copies and graphs, over a driver object. Opens nothing."""
