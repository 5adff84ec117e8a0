/* Whether two stretches of memory differ: *differs becomes 1. A block looks at PF_SAME_BYTES of each, 8 at a time where
 * both begin at a multiple of 8. Both are read once.
 */
#ifndef PF_SAME_HIP
#define PF_SAME_HIP
#include "pf_gpu.h"

enum { PF_SAME_BLOCK = 256, PF_SAME_BYTES = 1 << 15 };

PF_FN void pf_same(const char *one, const char *other, int64_t nbytes, int32_t *differs) {
  const int64_t first = (int64_t)pf_block() * PF_SAME_BYTES;
  const int64_t end = first + PF_SAME_BYTES < nbytes ? first + PF_SAME_BYTES : nbytes;
  const int64_t whole = ((int64_t)one | (int64_t)other) % 8 ? first : end / 8 * 8;
  int found = 0;
  for (int64_t at = first + 8 * pf_thread(); at < whole; at += 8 * PF_SAME_BLOCK)
    found |= *(const int64_t *)(one + at) != *(const int64_t *)(other + at);
  for (int64_t at = whole + pf_thread(); at < end; at += PF_SAME_BLOCK) found |= one[at] != other[at];
  if (found) *differs = 1;
}
#endif
