"""Process groups and what their processes say to each other, by torch.distributed's names: `pyflame.distributed` shows
them to programs; layers and optimisers that need them import them from the files here.

With one process nothing of torch is needed. With more, torch.distributed's groups (gloo, nccl = RCCL, mpi) do the work.
"""
