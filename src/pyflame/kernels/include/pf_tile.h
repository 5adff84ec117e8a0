/* What matmul.hip, conv.hip and attention.hip share: a block's tile of sums of products, and partial sums that a second
 * launch adds.
 *
 *   sum[i, j] = sum_k A[i, k] * B[k, j]      for ROWS x COLS outputs of a block, HIGH x WIDE of them in each thread
 *
 * Memory policy. Steps of DEPTH along k lie in LDS, twice: while one is multiplied the next is on its way from memory
 * into registers, and goes into the other half when the work is done, so a step has one barrier. A lies there as
 * [k][row], B as [k][column]; a thread reads GROUP neighbours (16 bytes) at once, and its groups lie so far apart that
 * neighbouring threads read neighbouring groups: no bank conflicts. Lines are padded by one group against conflicts
 * between lines. Sums stay in registers. From LDS a thread takes HIGH + WIDE numbers for HIGH * WIDE multiply-adds;
 * from memory a block takes (ROWS + COLS) * K of them for 2 * ROWS * COLS * K flops.
 *
 * Numbers lie in LDS as they are summed: 16-bit floats as float, small integers as 32 bits. Integers are added without
 * sign, where wrapping is defined; each output is one chain of multiply-adds in order of k.
 *
 * A kernel's text defines a struct K of its own for each kernel:
 *   stored, sum          the types in memory and of the sums
 *   load(stored)         a number as it is summed
 *   ROWS, COLS, DEPTH, HIGH, WIDE, THREADS and what else matmul.hip or conv.hip asks for
 * and a struct Out with `operator()(batch, i, j, sum)`, which takes a result: an epilogue (see matmul.hip), or
 * pf_partial.
 */
#ifndef PF_TILE_H
#define PF_TILE_H

/* A function of a struct that has an object. */
#if defined(PF_EMULATE)
#define PF_MEMBER inline __attribute__((always_inline))
#elif defined(__CUDACC__)
#define PF_MEMBER __device__ __forceinline__
#else
#define PF_MEMBER inline __attribute__((device, always_inline))
#endif

/* The loop over a step's k. Unrolled in full, clang makes all reads from LDS first, and needs registers for them. */
#if defined(PF_EMULATE) || defined(__CUDACC__)
#define PF_UNROLL_STEP PF_UNROLL
#else
#define PF_UNROLL_STEP _Pragma("unroll 2")
#endif

/* A loop whose body is long, and whose loads should fly together. */
#define PF_UNROLL_FEW _Pragma("unroll 4")

/* A kernel's arguments, which are words from number `first` on, where AMD's launch has put them: clang loads
 * parameters at a kernel's start, and with many of them runs out of scalar registers there. Others have them in
 * constant memory anyway. PF_AGAIN: what follows loads them again, rather than that a loop keeps them all. */
#if defined(PF_EMULATE) || defined(__CUDACC__)
typedef const int64_t *pf_late_args;
#define PF_LATE_ARGS(arg, first) (arg)
#define PF_AGAIN(arg)
#else
typedef const __attribute__((address_space(4))) int64_t *pf_late_args;
#define PF_LATE_ARGS(arg, first) ((pf_late_args)__builtin_amdgcn_kernarg_segment_ptr() + (first))
#if defined(__OPTIMIZE__)
#define PF_AGAIN(arg) __asm__ volatile("" : "+s"(arg))
#else
#define PF_AGAIN(arg) /* it is in a vector register then, from which old clangs cannot take it */
#endif
#endif

/* An address that an epilogue takes as a pointer to what it knows is there. */
struct pf_pointer {
  char *at;
  template <class T> PF_MEMBER operator T *() const { return (T *)at; }
};

PF_FN float pf_mul_add(float a, float b, float c) { return PF_FMA(a, b, c); }
PF_FN double pf_mul_add(double a, double b, double c) { return PF_FMAD(a, b, c); }
PF_FN uint32_t pf_mul_add(uint32_t a, uint32_t b, uint32_t c) { return a * b + c; }
PF_FN uint64_t pf_mul_add(uint64_t a, uint64_t b, uint64_t c) { return a * b + c; }

PF_FN int pf_least(int a, int b) { return a < b ? a : b; }

/* Walks over k in [k, end), DEPTH at a time. `In` brings steps of the operands: prepare(k, end, half) what a later fetch
 * needs, fetch(k, end, half) a step into registers. `Tile` takes them: put(in, lds) what was fetched into LDS,
 * multiply(lds) a step that lies there. `lds`: two steps of SIZE; all threads are done with it before and after. */
template <int DEPTH, int SIZE, class P, class In, class Tile>
PF_FN void pf_steps(P *lds, In &in, Tile &tile, int k, int end) {
  if (k >= end) return;
  if (In::PREPARES) {
    in.prepare(k, end, 0);
    in.prepare(k + DEPTH, end, 1);
    pf_barrier();
  }
  in.fetch(k, end, 0);
  tile.put(in, lds);
  pf_barrier();
  for (int half = 0; k < end; k += DEPTH, half ^= 1) {
    const int more = k + DEPTH < end;
    P *here = lds + half * SIZE, *next = lds + (half ^ 1) * SIZE;
    if (more) in.fetch(k + DEPTH, end, half ^ 1);
    tile.multiply(here);
    if (more) tile.put(in, next);
    if (In::PREPARES) in.prepare(k + 2 * DEPTH, end, half);
    pf_barrier();
  }
}

template <class K> struct pf_tile {
  typedef typename K::sum sum;
  enum {
    GROUP = 16 / (int)sizeof(sum),
    A_PITCH = K::ROWS + GROUP,
    B_PITCH = K::COLS + GROUP,
    B_AT = K::DEPTH * A_PITCH,
    SIZE = K::DEPTH * (A_PITCH + B_PITCH),
    DOWN = K::ROWS / K::HIGH,
    ACROSS = K::COLS / K::WIDE,
  };
  typedef pf_vector<sum, GROUP> group;
  sum at[K::HIGH][K::WIDE];

  PF_MEMBER void multiply(const group *a, const group *b) {
    const int x = pf_thread() % ACROSS, y = pf_thread() / ACROSS;
    PF_UNROLL_STEP
    for (int k = 0; k < K::DEPTH; k++) {
      group left[K::HIGH / GROUP], right[K::WIDE / GROUP];
      PF_UNROLL
      for (int g = 0; g < K::HIGH / GROUP; g++) left[g] = a[k * (A_PITCH / GROUP) + g * DOWN + y];
      PF_UNROLL
      for (int g = 0; g < K::WIDE / GROUP; g++) right[g] = b[k * (B_PITCH / GROUP) + g * ACROSS + x];
      PF_UNROLL
      for (int i = 0; i < K::HIGH; i++) {
        PF_UNROLL
        for (int j = 0; j < K::WIDE; j++)
          at[i][j] = pf_mul_add(left[i / GROUP].at[i % GROUP], right[j / GROUP].at[j % GROUP], at[i][j]);
      }
    }
  }

  PF_MEMBER void clear() {
    PF_UNROLL
    for (int i = 0; i < K::HIGH; i++) {
      PF_UNROLL
      for (int j = 0; j < K::WIDE; j++) at[i][j] = 0;
    }
  }

  template <class In> PF_MEMBER void put(const In &in, group *to) const { in.put((sum *)to); }
  PF_MEMBER void multiply(const group *step) { multiply(step, step + B_AT / GROUP); }

  /* Adds the products of k in [k, end), as pf_steps does. */
  template <class In> PF_MEMBER void add(group *lds, In &in, int k, int end) {
    pf_steps<K::DEPTH, SIZE / GROUP>(lds, in, *this, k, end);
  }

  /* The sums over k in [k, end). */
  template <class In> PF_MEMBER void run(In &in, int k, int end) {
    PF_SHARED group lds[2 * (SIZE / GROUP)];
    clear();
    add(lds, in, k, end);
  }

  /* Hand over what lies inside of m x n, for a tile that begins at (first, left). */
  template <class Out> PF_MEMBER void store(int first, int left, int m, int n, const Out &out) const {
    const int x = pf_thread() % ACROSS, y = pf_thread() / ACROSS;
    PF_UNROLL
    for (int r = 0; r < K::HIGH; r++) {
      const int i = first + (r / GROUP * DOWN + y) * GROUP + r % GROUP;
      PF_UNROLL
      for (int c = 0; c < K::WIDE; c++) {
        const int j = left + (c / GROUP * ACROSS + x) * GROUP + c % GROUP;
        if (i < m && j < n) out(i, j, at[r][c]);
      }
    }
  }
};

/* ---- partial sums: [part][batch][m][n] in scratch, each part as large as the result --------------------------- */

/* Neighbours, as an aligned vector. */
template <class S, int N> PF_FN void pf_put_several(S *at, const S (&sums)[N]) {
  pf_vector<S, N> all;
  PF_UNROLL
  for (int e = 0; e < N; e++) all.at[e] = sums[e];
  *(pf_vector<S, N> *)at = all;
}

template <class S> struct pf_partial {
  S *at;
  int64_t m, n;
  /* `batch` counts through the parts: part * batches + batch. */
  PF_MEMBER void operator()(int64_t batch, int64_t i, int64_t j, S sum) const { at[(batch * m + i) * n + j] = sum; }
  template <int N> PF_MEMBER void several(int64_t batch, int64_t i, int64_t j, const S (&sums)[N]) const {
    pf_put_several(at + (batch * m + i) * n + j, sums);
  }
};

enum { PF_FINISH_OUTPUTS, PF_FINISH_PARTS, PF_FINISH_M, PF_FINISH_M_MAGIC, PF_FINISH_N, PF_FINISH_N_MAGIC };

/* The parts of one output lie `outputs` apart. SHARE threads add them, every SHARE-th each, and meet in LDS: many parts are
 * of few outputs, which would leave most of a GPU idle. The order does not depend on how blocks ran. */
template <class S, int THREADS, int SHARE> struct pf_parts {
  enum { EACH = THREADS / SHARE }; /* outputs of a block */
  PF_FN int output() { return pf_block() * EACH + pf_thread() % EACH; }
  /* Whether this thread is the one that gets an output's sum. */
  PF_FN int add(const char *scratch, int64_t outputs, int parts, S &sum) {
    const int at = output(), share = pf_thread() / EACH;
    const S *partial = (const S *)scratch + at;
    sum = 0;
    if (at < outputs) {
      PF_UNROLL_FEW
      for (int part = share; part < parts; part += SHARE) sum += partial[part * outputs];
    }
    if constexpr (SHARE > 1) {
      PF_SHARED S met[SHARE][EACH];
      met[share][pf_thread() % EACH] = sum;
      pf_barrier();
      PF_UNROLL
      for (int n = 1; n < SHARE; n++) sum += met[n][pf_thread() % EACH]; /* of which only the first thread's is whole */
    }
    return at < outputs && !share;
  }
};

template <class S, int THREADS, int SHARE, class Out>
PF_FN void pf_finish(const char *scratch, const int64_t *arg, const Out &out) {
  typedef pf_parts<S, THREADS, SHARE> of;
  const int at = of::output();
  S sum;
  if (!of::add(scratch, arg[PF_FINISH_OUTPUTS], (int)arg[PF_FINISH_PARTS], sum)) return;
  const int row = pf_divide(at, arg[PF_FINISH_N_MAGIC]), batch = pf_divide(row, arg[PF_FINISH_M_MAGIC]);
  out(batch, row - batch * (int)arg[PF_FINISH_M], at - row * (int)arg[PF_FINISH_N], sum);
}

/* Sums of `count` numbers over neighbouring lanes, a power of two of them; each gets all. */
template <int LANES, class S> PF_FN void pf_lanes_sum(S *sums, int count) {
  PF_UNROLL
  for (int n = 0; n < count; n++) {
    PF_UNROLL
    for (int w = 1; w < LANES; w *= 2) sums[n] += pf_shuffle_xor(sums[n], w);
  }
}

#endif
