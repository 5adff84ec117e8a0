"""Training on many devices and machines, on torch.distributed's process groups: collectives (from `collectives`), and
what is made of them. With one process nothing of torch is needed.
"""

from pyflame.collectives import mesh as device_mesh  # noqa: F401  torch's path
from pyflame.collectives.groups import (
    Backend,
    ProcessGroup,
    default_pg_timeout,
    get_default_backend_for_device,
    get_node_local_rank,
    is_backend_available,
    is_torchelastic_launched,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from pyflame.collectives.mesh import DeviceMesh, init_device_mesh
from pyflame.collectives.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from pyflame.collectives.ops import (
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from pyflame.collectives.point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from pyflame.collectives.work import Work
from pyflame.collectives.world import (
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    new_group,
)
from pyflame.core.errors import CollectiveError as DistBackendError  # what is raised where a backend fails
from pyflame.core.torch_paths import below
from pyflame.distributed import nn
from pyflame.distributed.checkpoint import (
    full_state_dict,
    load_checkpoint,
    load_full_state_dict,
    save_checkpoint,
)
from pyflame.distributed.clip import clip_grad_norm_
from pyflame.distributed.data_parallel import DataParallelStep, data_parallel_step
from pyflame.distributed.division import mark_divided
from pyflame.distributed.fully_sharded import FullyShardedDataParallel
from pyflame.distributed.pipeline import Schedule1F1B
from pyflame.distributed.tensor_parallel import ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding
from pyflame.distributed.zero import ZeroRedundancyOptimizer

DistError = DistBackendError

__getattr__ = below("distributed")

__all__ = [
    "Backend",
    "ColumnParallelLinear",
    "DataParallelStep",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "FullyShardedDataParallel",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "RowParallelLinear",
    "Schedule1F1B",
    "VocabParallelEmbedding",
    "Work",
    "ZeroRedundancyOptimizer",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "clip_grad_norm_",
    "data_parallel_step",
    "default_pg_timeout",
    "destroy_process_group",
    "full_state_dict",
    "gather",
    "gather_object",
    "get_backend",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "isend",
    "load_checkpoint",
    "load_full_state_dict",
    "mark_divided",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "nn",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "save_checkpoint",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
]
