/* Runs GPU kernel text on the host, one block after another: to know that it computes the right thing without a GPU.
 *
 * The threads of a block are fibers. Each runs until it meets a barrier or a shuffle, then the next one runs; when all
 * have met, the round begins anew. So a missing barrier shows: under one of the two orders (`reverse`) a thread reads
 * what another has not written yet. Threads that do not all meet at the same place are an error, as on a real GPU.
 *
 * Compiled with -fsanitize=alignment: an access at an address that is no multiple of its type's alignment, which this
 * machine and AMD's GPUs allow and NVIDIA's do not, is an error too.
 */
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>

#define PF_EMULATE 1
#define PF_GLOBAL(threads) static void
#define PF_GLOBAL_ALONE(threads) static void
#define PF_CLUSTER(blocks)
#define PF_SHARED static

struct pf_index {
  unsigned x, y, z;
};
enum { EMU_THREADS = 1024, EMU_STACK = 1 << 17, EMU_LDS = 65536, EMU_RUNNING, EMU_BARRIER, EMU_SHUFFLE, EMU_DONE };

static struct {
  jmp_buf scheduler, fiber[EMU_THREADS];
  char *stacks, made[EMU_THREADS];
  int state[EMU_THREADS], parity[EMU_THREADS], slot[2][EMU_THREADS];
  int thread, block;
  pf_index block_size, grid_size; /* of a launch whose kernel asks; others are one-dimensional */
  void (*call)(const long long *words);
  const long long *words;
} emu;

/* Jumps rather than swapcontext, which calls the kernel each time; a fiber is made once and runs its thread of every block. */
static void emu_yield(int state) {
  emu.state[emu.thread] = state;
  if (!_setjmp(emu.fiber[emu.thread])) _longjmp(emu.scheduler, 1);
}
static void emu_main() {
  for (;;) {
    emu.call(emu.words);
    emu_yield(EMU_DONE);
  }
}
static void emu_resume(int thread) {
  emu.thread = thread;
  emu.state[thread] = EMU_RUNNING;
  if (_setjmp(emu.scheduler)) return;
  if (emu.made[thread]) _longjmp(emu.fiber[thread], 1);
  emu.made[thread] = 1;
  ucontext_t fresh;
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = emu.stacks + (size_t)thread * EMU_STACK;
  fresh.uc_stack.ss_size = EMU_STACK;
  makecontext(&fresh, emu_main, 0);
  setcontext(&fresh);
}

/* What the compiler calls before an access that lies askew, with a record that begins as below. Told once a launch. */
static int emu_askew;
struct emu_access {
  const char *file;
  unsigned line, column;
  const void *type;
  unsigned char log_alignment;
};
extern "C" void __ubsan_handle_type_mismatch_v1(const emu_access *at, const void *address) {
  if (!emu_askew++)
    fprintf(stderr, "%s:%u: block %d, thread %d: %p is no multiple of %d\n", at->file, at->line, emu.block, emu.thread,
            address, 1 << at->log_alignment);
}

/* Dynamic LDS, which holds a pattern at first. Aligned as a GPU's is. */
alignas(16) static char emu_dynamic[EMU_LDS];
extern "C" void emu_shape(const int *grid, const int *block) {
  emu.grid_size = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
  emu.block_size = {(unsigned)block[0], (unsigned)block[1], (unsigned)block[2]};
  memset(emu_dynamic, 0xff, sizeof(emu_dynamic));
}
static inline pf_index emu_place(unsigned n, pf_index size) {
  return {n % size.x, n / size.x % size.y, n / size.x / size.y};
}
static inline pf_index pf_thread_index() { return emu_place((unsigned)emu.thread, emu.block_size); }
static inline pf_index pf_block_index() { return emu_place((unsigned)emu.block, emu.grid_size); }
static inline pf_index pf_block_size() { return emu.block_size; }
static inline pf_index pf_grid_size() { return emu.grid_size; }
static inline int pf_thread() { return emu.thread; }
static inline int pf_block() { return emu.block; }
static inline void pf_barrier() { emu_yield(EMU_BARRIER); }
/* Shows x to the other threads and waits for theirs; gives what all have shown. */
static inline const int *emu_share(int x) {
  const int me = emu.thread;
  /* Two sets of slots: a fast lane may be at its next shuffle before a slow one has read. */
  const int set = emu.parity[me] ^= 1;
  emu.slot[set][me] = x;
  emu_yield(EMU_SHUFFLE);
  return emu.slot[set];
}
static inline int pf_shuffle_xor_word(int x, int mask) {
  const int *shown = emu_share(x);
  return mask > 0 && mask < PF_WAVE ? shown[emu.thread ^ mask] : 0x7fbadbad;
}
static inline int pf_shuffle_word(int x, int lane) {
  const int *shown = emu_share(x);
  return lane >= 0 && lane < PF_WAVE ? shown[emu.thread - emu.thread % PF_WAVE + lane] : 0x7fbadbad;
}
static inline unsigned long long pf_ballot(int p) {
  const int *shown = emu_share(p != 0) + (emu.thread - emu.thread % PF_WAVE);
  unsigned long long bits = 0;
  for (int lane = 0; lane < PF_WAVE; lane++) bits |= (unsigned long long)shown[lane] << lane;
  return bits;
}
static inline void pf_wave_sync() { emu_share(0); }
static inline int pf_count_bits(unsigned long long x) { return __builtin_popcountll(x); }
static inline unsigned pf_mul_high(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
template <class T> static inline T pf_atomic_add(T *at, T x) {
  const T old = *at;
  *at = old + x;
  return old;
}
template <class T> static inline T pf_atomic_max(T *at, T x) {
  const T old = *at;
  *at = old > x ? old : x;
  return old;
}
template <class T> static inline T pf_atomic_load(const T *at) { return *at; }
static inline void pf_atomic_store(uint32_t *at, uint32_t x) { *at = x; }
template <class T> static inline T pf_atomic_swap_if(T *at, T old, T x) {
  const T found = *at;
  if (found == old) *at = x;
  return found;
}
static inline int pf_first(long long *record, long long value) {
  if (*record) return 0;
  *record = value;
  return 1;
}

/* Gives 0; 1 + the state in which the threads of a block parted ways; or -1 after accesses that lay askew. */
static int emu_launch(void (*call)(const long long *), const long long *words, long long grid, int block, int reverse) {
  if (!emu.stacks) emu.stacks = (char *)malloc((size_t)EMU_THREADS * EMU_STACK);
  emu.call = call;
  emu.words = words;
  emu_askew = 0;
  for (long long b = 0; b < grid; b++) {
    emu.block = (int)(reverse ? grid - 1 - b : b);
    memset(emu.parity, 0, sizeof(emu.parity));
    for (int state = EMU_RUNNING; state != EMU_DONE;) {
      for (int n = 0; n < block; n++) emu_resume(reverse ? block - 1 - n : n);
      state = emu.state[0];
      for (int t = 0; t < block; t++)
        if (emu.state[t] != state) {
          memset(emu.made, 0, sizeof(emu.made)); /* they are somewhere inside of the kernel */
          return 1 + state;
        }
    }
  }
  return emu_askew ? -1 : 0;
}

/* An argument is the first bytes of its word. */
template <class A> static A emu_argument(long long word) {
  A out;
  memcpy(&out, &word, sizeof(A));
  return out;
}
template <auto kernel, class... A, size_t... I>
static void emu_spread(const long long *words, void (*)(A...), std::index_sequence<I...>) {
  kernel(emu_argument<A>(words[I])...);
}
template <class... A> static auto emu_sequence(void (*)(A...)) { return std::index_sequence_for<A...>(); }
template <auto kernel> static void emu_call(const long long *words) { emu_spread<kernel>(words, kernel, emu_sequence(kernel)); }

/* One entry point per kernel: words as on a GPU. */
#define EMU_EXPORT(name)                                                                                           \
  extern "C" int run_##name(const long long *words, long long grid, int block, int reverse) {                      \
    return emu_launch(emu_call<name>, words, grid, block, reverse);                                                \
  }

#include "pf_gpu.h"
