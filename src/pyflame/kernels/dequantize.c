/* y = what rows of encoded blocks stand for, block by block.
 *
 * A task is a block; rows are whole blocks, so that nothing is known of rows here. `decode` is a constant where this is
 * inlined, and gives a group of a block as floats; `store` writes them as the elements of y.
 *
 * Bytes: each block once, y once.
 * Buffers: bytes, y.
 */
#ifndef PF_DEQUANTIZE_C
#define PF_DEQUANTIZE_C

#include "pf_encoding.h"

enum { PF_LARGEST_GROUP = 16 };
typedef void (*pf_decoder)(const uint8_t *b, int g, float *y);
typedef void (*pf_writer)(const float *y, char *out, int64_t at, int n);

PF_FN void pf_dequantize(char *const *buf, int64_t begin, int64_t end, int nbytes, int groups, int group, pf_decoder decode,
                         pf_writer store) {
  const uint8_t *bytes = (const uint8_t *)buf[0];
  for (int64_t block = begin; block < end; block++)
    for (int g = 0; g < groups; g++) {
      float y[PF_LARGEST_GROUP];
      decode(bytes + block * nbytes, g, y);
      store(y, buf[1], (block * groups + g) * group, group);
    }
}

#endif
