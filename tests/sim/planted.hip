// Kernels with a mistake, or with something that looks like one. The comments mark the lines that faults name.
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED __attribute__((shared))
#define DEVICE __attribute__((device))
#define TID ((int)__builtin_amdgcn_workitem_id_x())
#define INDEX ((int)(__builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + TID))
#define RELAXED __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP

DEVICE inline void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

KERNEL fill(float *out, int n) {
  if (INDEX < n)
    out[INDEX] = 1; // fill
}

KERNEL copy(float *out, const float *in, int n) {
  if (INDEX < n)
    out[INDEX] = in[INDEX]; // copy
}

KERNEL mirror(float *out, int wait) {
  SHARED float tile[128];
  tile[TID] = TID; // mirror write
  if (wait) sync();
  out[TID] = tile[127 - TID]; // mirror read
}

KERNEL same_place(int *out) {
  SHARED volatile int cell;
  cell = TID;
  sync();
  out[TID] = cell;
}

KERNEL no_race(int *out) {
  SHARED int count;
  SHARED unsigned char bytes[128];
  if (TID == 0) count = 0;
  sync();
  bytes[(TID & 1) * 64 + TID / 2] = (TID & 1) * 64 + TID / 2; // the bytes of a word come from different waves
  __hip_atomic_fetch_add(&count, 1, RELAXED);
  sync();
  out[TID] = count + bytes[127 - TID];
}

KERNEL atomic_and_read(int *out) {
  SHARED int count;
  if (TID == 0) count = 0;
  sync();
  __hip_atomic_fetch_add(&count, 1, RELAXED);
  out[TID] = *(volatile int *)&count;
}

KERNEL early_end(int *out, int n) {
  SHARED int tile[128];
  tile[TID] = TID;
  if (TID >= n) return;
  __builtin_amdgcn_s_barrier(); // early end
  out[TID] = tile[n - 1 - TID];
}

KERNEL around(int *out, int n) {
  SHARED int tile[128];
  tile[TID] = TID;
  if ((TID & 1) < n) {
    __builtin_amdgcn_s_barrier(); // around
    tile[TID] += 1;
  }
  out[TID] = tile[TID];
}

KERNEL returned(int *out, int n) {
  SHARED int tile[128];
  if (TID >= n) return;
  tile[TID] = TID;
  sync();
  out[TID] = tile[n - 1 - TID];
}

KERNEL some_shared(float *out, int n) {
  SHARED float tile[128];
  if (TID < n) tile[TID] = TID;
  sync();
  out[TID] = tile[TID]; // some shared
}

KERNEL some_stack(int *out, const int *index, int n) {
  volatile int local[64];
  for (int i = 0; i < n; i++) local[index[i]] = i;
  out[TID] = local[index[TID]]; // some stack
}

extern SHARED int dynamic[];
KERNEL dynamic_lds(int *out) {
  dynamic[TID] = TID;
  out[TID] = dynamic[TID];
}

KERNEL forever(int *flag) {
  while (*(volatile int *)flag) {}
}

KERNEL unknown(int *out) {
  out[TID] = TID;
  __builtin_amdgcn_ds_gws_init(1, 0); // unknown
}

KERNEL trap(int *out, int stop) {
  out[TID] = TID;
  if (stop) __builtin_trap();
}

KERNEL bump(int *out) {
  __hip_atomic_fetch_add(&out[TID], 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

DEVICE inline void put(int *out, int i, int x) {
  out[i] = x; // callee
}
KERNEL through_a_function(int *out, int n) {
  put(out, n + TID, 1); // caller
}

KERNEL strided(float *out, const float *in, int stride) {
  out[TID] = in[TID * stride];
}

KERNEL odd_lanes(float *out) {
  if (TID & 1) {
    float x = out[TID];
    for (int i = 0; i < 64; i++) x = x * x + out[i + 1];
    out[TID] = x;
  }
}

KERNEL crowd(int *out, int width) {
  out[INDEX % width] = INDEX; // crowd
}

KERNEL agree(int *out, int width) {
  out[INDEX % width] = INDEX % width;
}

KERNEL take_turns(int *out, int wait) {
  if (TID < 64) out[TID] = TID;
  if (wait) sync();
  if (TID >= 64) out[TID - 64] = TID; // take turns
}
