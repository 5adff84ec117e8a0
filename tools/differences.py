"""What of PyTorch PyFlame does not have, and what it has with another meaning: the tables of docs/pytorch-users.md.

tests/names/test_methods.py compares MISSING with the installed torch, so a name cannot be missing unsaid.
"""

from __future__ import annotations

# Place -> names of torch that are not there. Names of torch's own machinery, which programs do not use, are left out.
MISSING: dict[str, tuple[str, ...]] = {
    "nn": ("quantized",),
    "nn.functional": (
        "grouped_mm", "scaled_grouped_mm", "scaled_mm",
    ),
    "func": ("debug_unwrap", "rearrange"),
    "profiler": ("DeviceType", "ExecutionTraceObserver"),
    "utils.data": ("IterDataPipe", "MapDataPipe"),
}  # fmt: skip

# What is there and means something else: (torch, here).
DIFFERENCES: tuple[tuple[str, str], ...] = (
    ("`torch.compile(model)` gives a compiled module", "gives the module itself: graphs are always compiled"),
    ("`t.device.type` is `cuda` on AMD GPUs", "it is `rocm`; the name `cuda` is taken for it"),
    ("`torch.cuda` has a random generator for each GPU", "there is one for all devices, which draws the same on each"),
    ("`torch.backends.cudnn.deterministic` holds for the process", "for the thread, as `pf.deterministic()` does"),
    ("`torch.backends.cudnn.benchmark`, `enabled`, attention switches", "remembered; all is measured anyway"),
    ("`torch.nn.attention.sdpa_kernel(...)` chooses an implementation", "changes nothing: the fastest right one runs"),
    ("`torch.set_num_threads(n)`", "warns: start with `PYFLAME_THREADS=n`"),
    ("`torch.load(weights_only=False)` runs what a file names", "nothing is ever run; what is no data is named"),
    ("`DataLoader`'s `multiprocessing_context`, `in_order`", "taken: workers come from a forkserver, batches in order"),
    ("`torch.multiprocessing` shares tensors between processes", "copies them: a write reaches its own process only"),
    ("`torch.save` writes zip archives of pickles", "`pf.save` writes safetensors, whatever the file is called"),
    ("`torch.distributed` refuses to start without `MASTER_ADDR`", "one process needs neither it nor torch"),
    ("DDP averages gradients while `backward()` computes others", "when it ends, in buckets that are sent at once"),
    ("KL of `ContinuousBernoulli` and `Uniform(0, 1)` is infinite", "finite: all values of the one are the other's"),
    ("distributions check their parameters' values", "with `validate_args=True` only, which evaluates them"),
    ("`torch.vmap` rewrites ops for the whole batch", "runs the function for each example, and stacks the results"),
    ("`torch.poisson`, distributions of counts and `VonMises` draw on the device", "on the host, so not in `pf.jit`"),
    ("`t.resize_` grows tensors, and takes views", "only to fewer elements, of a tensor that shares no memory"),
    ("`t.set_` takes storages and where to lie in them", "tensors only: `t.set_(source.as_strided(...))`"),
    ("`Module.to` makes new tensors of buffers, `assign=True` new parameters", "the same ones hold other values"),
    ("`register_backward_hook` sees the last op's gradients", "the module's: it is `register_full_backward_hook`"),
    ("`load_state_dict` that raises has loaded what fits", "nothing is loaded"),
    ("`memory_format`, `layout`, `pin_memory`, `non_blocking`", "taken and without effect: the engine sees to memory"),
    ("`optimizer.state` is empty before the first step", "has what the rule keeps from the start"),
    ("`foreach`, `fused`, `capturable` choose an implementation", "taken; there is one, which `pf.jit` takes too"),
    ("`torch.autograd.set_detect_anomaly(True)` searches for NaN", "warns: it does not"),
    ("`torch.hub`, `autograd.graph.saved_tensors_hooks`, sparse gradients", "raise `NotSupportedError`"),
    ("`torch.__version__` is PyTorch's", "PyFlame's: for a program that asks for 2.x, set `pf.__version__` first"),
    ("`torch.ops.load_library` loads compiled ops", "raises an OSError: libraries then do without"),
    ("`torch.onnx.register_custom_op_symbolic`", "is taken and without effect"),
    ("`torch.onnx.export` has dynamic axes", "`pf.onnx.export` writes the shapes of its arguments"),
    ("`torch.func.jvp` and `jacfwd` run forward", "are made of two backward passes; `jacrev` is a pass for each row"),
    ("`forward_ad` sees through `no_grad` and `backward`", "of gradients made with `create_graph=True`, not `no_grad`"),
    ("properties as `.shape` ask `__torch_function__`", "methods, functions, operators, `.T` and its like do"),
    ("`__torch_dispatch__`, `TorchFunctionMode`", "not there: `__torch_function__` of a class is asked"),
    ("`torch.export`, `torch.distributed.rpc`, `DTensor`", "can be imported, and raise when called"),
    ("`torch.ops.aten.add.Tensor` is one overload", "`add`, `Tensor` and `default` are one function: `pf.add`"),
    ("`torch._dynamo.config`, `torch._inductor.config`", "remember what is set, without effect"),
    ("`torch.library.custom_op` is opaque to compilers", "`pf.jit` traces it: it must be made of ops there"),
    ("`torch.profiler` shows ops", "shows kernels; all devices are recorded, the longest first"),
    ("`t.numpy()` can be written, and `t` sees it", "is read only: write to `t.numpy().copy()`"),
    ("`as_strided` where elements overlap can be written", "it can be read"),
    ("`topk`, `kthvalue`, `mode`, unstable `sort`: which of equals", "the first in order; PyTorch does not say which"),
    ("`out=` must have the result's dtype in some ops", "any dtype that can hold it, in all"),
    ("values of arguments are checked (`cov`'s weights)", "what would evaluate them is not, but for indices"),
    ("convolutions refuse a bias of another dtype", "dtypes promote"),
    ("uint16, uint32 and uint64 have few ops", "have all but convolutions; they mix with floats only, as in PyTorch"),
    ("`LinearCrossEntropyOptions` has policies of sums, too", "`batch_chunk_size` alone; sums are float32 or wider"),
    ("`ctc_loss`'s gradient is for normalised probabilities", "it is that of the loss; behind `log_softmax` equal"),
    ("`cholesky_solve`'s gradient fills both triangles", "only the triangle that is read has one"),
    ("`as_strided_scatter`'s gradient for its input is that of `src`", "it is 0 where `src` is written, else 1"),
    ("`CrossMapLRN2d`'s gradient is not quite that of its result", "it is"),
    ("average pooling of integers rounds down", "raises: cast first"),
)  # fmt: skip


def tables() -> str:
    """Both tables as Markdown."""
    lines = ["| PyTorch | PyFlame |", "|---|---|"]
    lines += [f"| {theirs} | {ours} |" for theirs, ours in DIFFERENCES]
    lines += ["", "Not there:", "", "| in | names |", "|---|---|"]
    lines += [f"| `{place}` | {', '.join(f'`{name}`' for name in names)} |" for place, names in MISSING.items()]
    return "\n".join(lines)
