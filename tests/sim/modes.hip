// Kernels with a mistake that only a mode shows. The comments mark the lines that faults name.
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED __attribute__((shared))
#define DEVICE __attribute__((device))
#define TID ((int)__builtin_amdgcn_workitem_id_x())
#define INDEX ((int)(__builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + TID))

DEVICE inline void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

#define AGENT __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT
#define BLOCK ((int)__builtin_amdgcn_workgroup_id_x())
DEVICE inline void fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

KERNEL neighbour(int *out, int *cells, int n) {
  cells[INDEX] = BLOCK; // neighbour write
  out[INDEX] = cells[(INDEX + 128) % n]; // neighbour read
}

KERNEL hand_on(int *out, int *cells, int wait) {
  if (TID < 64) cells[TID] = TID; // hand on
  if (wait) sync();
  if (TID >= 64) out[TID] = cells[TID - 64];
}

// The sum of all blocks' results, made by the block that comes last. how: 1 releases, 2 acquires, 4 waits for the block.
KERNEL last_block(int *out, int *parts, int *count, int blocks, int how) {
  SHARED int last;
  if (TID == 0) last = 0;
  parts[INDEX] = TID; // last block write
  sync();
  if (how & 4) sync();
  if (TID == 0) {
    if (how & 1) fence();
    last = __hip_atomic_fetch_add(count, 1, AGENT) == blocks - 1;
    if (how & 2) fence();
  }
  sync();
  if (!last) return;
  int sum = 0;
  for (int i = 0; i < blocks; i++) sum += parts[i * 128 + TID]; // last block read
  out[TID] = sum;
}

// Blocks take turns, each when the one before has raised the flag.
KERNEL queue(int *cell, int *flag, int fences) {
  if (TID) return;
  while (__hip_atomic_load(flag, AGENT) != BLOCK) __builtin_amdgcn_s_sleep(1);
  if (fences) fence();
  *cell += BLOCK; // queue
  if (fences) fence();
  __hip_atomic_store(flag, BLOCK + 1, AGENT);
}

KERNEL count_up(int *cells, int fences) {
  if (fences) fence();
  cells[TID] += 1;
  if (fences) fence();
}

KERNEL scale(int *out, const int *factor) {
  out[TID] = TID * factor[0];
}

KERNEL crowd(int *out, int width) {
  out[INDEX % width] = INDEX; // crowd
}

KERNEL agree(int *out, int atomically) {
  if (atomically) __hip_atomic_store(&out[TID], TID, AGENT);
  else out[TID] = TID; // agree
}

KERNEL take_turns(int *out, int wait) {
  if (TID < 64) out[TID] = TID;
  if (wait) sync();
  if (TID >= 64) out[TID - 64] = TID; // take turns
}

KERNEL bump(int *out) {
  __hip_atomic_fetch_add(&out[TID], 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
