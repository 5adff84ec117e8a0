// Kernels that need something of the loader: calls, a stack, tables of pointers, hidden arguments, both kinds of LDS.
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED __attribute__((shared))
#define DEVICE __attribute__((device))
#define APART DEVICE __attribute__((noinline))
#define TID ((int)__builtin_amdgcn_workitem_id_x())
#define AGENT __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT

DEVICE inline void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

DEVICE int cell = 7;
DEVICE int *pointer = &cell;
__attribute__((constant)) float table[4] = {1, 2, 4, 8};

APART int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
APART int add(int a, int b) { return a + b; }
APART int multiply(int a, int b) { return a * b; }
typedef int (*Operation)(int, int);
DEVICE Operation operations[2] = {add, multiply};

KERNEL calls(int *out, int which) { out[TID] = fib(TID % 8) + operations[(TID + which) & 1](TID, 3) + *pointer; }

KERNEL globals(float *out) { out[TID] = table[TID & 3] + *pointer; }

extern SHARED float dynamic[];
KERNEL reverse(float *out, const float *in) {
  SHARED float fixed[200];
  if (TID < 200) fixed[TID] = in[TID];
  dynamic[TID] = 100 * in[TID];
  sync();
  out[TID] = fixed[TID * 199 / 255] + dynamic[255 - TID];
}

KERNEL sizes(int *out) {
  const int x = __builtin_amdgcn_workgroup_size_x(), y = __builtin_amdgcn_workgroup_size_y(),
            z = __builtin_amdgcn_workgroup_size_z();
  const int blocks_x = __builtin_amdgcn_grid_size_x() / x, blocks_y = __builtin_amdgcn_grid_size_y() / y;
  const int block = __builtin_amdgcn_workgroup_id_x() +
                    blocks_x * (__builtin_amdgcn_workgroup_id_y() + blocks_y * __builtin_amdgcn_workgroup_id_z());
  const int thread = TID + x * (__builtin_amdgcn_workitem_id_y() + y * __builtin_amdgcn_workitem_id_z());
  out[block * x * y * z + thread] = thread + 1000 * block + 1000000 * (int)__builtin_amdgcn_grid_size_z();
}

KERNEL stack(int *out, const int *index, int n) {
  volatile int local[32];
  for (int i = 0; i < 32; i++) local[i] = i * i;
  for (int i = 0; i < n; i++) local[index[i] & 31] += local[(index[i] + TID) & 31];
  out[TID] = local[TID & 31];
}

struct Mixed {
  double d;
  short s[5];
  signed char c;
  int i;
};
KERNEL by_value(Mixed m, signed char c, short s, int *out) {
  if (TID) return;
  out[0] = m.d, out[1] = m.s[4], out[2] = m.c, out[3] = m.i, out[4] = c, out[5] = s;
}

KERNEL counters(unsigned *sums, float *f, double *d, unsigned long long *most, int *tickets) {
  SHARED unsigned local[4];
  if (TID < 4) local[TID] = 0;
  sync();
  __hip_atomic_fetch_add(&local[TID & 3], TID, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  sync();
  if (TID < 4) __hip_atomic_fetch_add(&sums[TID], local[TID], AGENT);
  __hip_atomic_fetch_add(f, 0.5f, AGENT);
  __hip_atomic_fetch_add(d, 0.25, AGENT);
  __hip_atomic_fetch_max(most, (unsigned long long)TID << 33, AGENT);
  tickets[__builtin_amdgcn_workgroup_id_x() * 128 + TID] = __hip_atomic_fetch_add((int *)&sums[4], 1, AGENT);
}

KERNEL hand_over(int *out) { // a wave that waits for another one, without a barrier
  SHARED int flag;
  if (TID == 0) flag = 0;
  sync();
  if (TID >= 64) {
    while (!__hip_atomic_load(&flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP)) {}
  } else if (TID == 0) {
    __hip_atomic_store(&flag, 5, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
  }
  out[TID] = TID;
}
