/* The calling convention of every CPU kernel.
 *
 * A kernel gets its buffers as base pointers, its extents and strides as integers and its constants as
 * uniforms, and works through [begin, end) of its parallel index. The runner hands out those ranges to
 * worker threads; `worker` numbers the thread, for kernels that keep scratch of their own.
 */
#ifndef PF_ABI_H
#define PF_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef union {
  double f;
  int64_t i;
} pf_word;

typedef void (*pf_kernel)(char *const *buf, const int64_t *arg, const pf_word *uni, int64_t begin, int64_t end,
                          int64_t worker);

#define PF_KERNEL(name)                                                                                        \
  void name(char *const *buf, const int64_t *arg, const pf_word *uni, int64_t begin, int64_t end, int64_t worker)

/* A quotient of what is not negative: of 64 bits a division takes up to 90 clocks, of 32 bits 26, and positions are small. */
static inline int64_t pf_div(int64_t x, int64_t by) {
  if (by == 1) return x;
  return (uint64_t)(x | by) >> 32 ? x / by : (int64_t)((uint32_t)x / (uint32_t)by);
}

/* Kernels find the error record before their first buffer: {1 + number of the check, index, size}. The first wins. */
static inline void pf_bad_index(char *const *buf, int64_t check, int64_t index, int64_t size) {
  int64_t *record = (int64_t *)buf[-1];
  int64_t none = 0;
  if (__atomic_compare_exchange_n(record, &none, check + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    record[1] = index;
    record[2] = size;
  }
}

#endif
