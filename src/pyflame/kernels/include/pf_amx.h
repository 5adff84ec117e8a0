/* Products of AMX's tiles. Before including this file define PF_DOT, the instruction that multiplies two. */
#ifndef PF_AMX_H
#define PF_AMX_H

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How tiles were configured: programs like llama.cpp do that once for a thread, and multiply in it between calls of ours. */
static __thread uint8_t pf_found_config[64] __attribute__((aligned(64)));

/* Tiles 0-3 accumulate (row tile * 2 + column tile), 4-5 hold A, 6-7 hold B; all are 16 rows of 64 bytes. */
__attribute__((unused)) static void pf_kernel_begin(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } __attribute__((aligned(64))) config = {.palette = 1};
  for (int tile = 0; tile < 8; tile++) config.row_bytes[tile] = 64, config.rows[tile] = 16;
  _tile_storeconfig(pf_found_config);
  /* gcc's intrinsics tell the compiler of 8 bytes: without this it drops the stores to the others. */
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

__attribute__((unused)) static void pf_kernel_end(void) {
  if (pf_found_config[0])
    _tile_loadconfig(pf_found_config);
  else
    _tile_release();
}

/* Linux grants the 8 KB of tile state per process, on request. 0: granted. */
__attribute__((unused)) static int64_t pf_kernel_permit(void) {
  enum { arch_req_xcomp_perm = 0x1023, xfeature_xtiledata = 18 };
  return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata);
}

/* What is multiplied: rows of A, a_row bytes apart, and 16 of their words a_step bytes behind the last; of B, rows of one
 * word of all columns each, b_row bytes apart. */
typedef struct {
  const void *a, *b;
} pf_tile_pair;

PF_ALWAYS_INLINE void pf_tile_square(const int row_tiles, const int col_tiles, int64_t words, int count, const pf_tile_pair *pairs,
                                     int64_t a_row, int64_t a_step, int64_t b_row, char *c, int64_t c_row, int resume) {
  __asm__ volatile("" : : : "memory"); /* nor does it know what tiles are loaded from */
  if (resume) {
    _tile_loadd(0, c, c_row);
    if (col_tiles > 1) _tile_loadd(1, c + 64, c_row);
    if (row_tiles > 1) _tile_loadd(2, c + 16 * c_row, c_row);
    if (row_tiles > 1 && col_tiles > 1) _tile_loadd(3, c + 16 * c_row + 64, c_row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (; count > 0; count--, pairs++) {
    const char *a = pairs->a, *b = pairs->b;
    for (int64_t w = 0; w < words; w += 16, a += a_step, b += 16 * b_row) {
      _tile_loadd(6, b, b_row);
      _tile_loadd(4, a, a_row);
      PF_DOT(0, 4, 6);
      if (col_tiles > 1) {
        _tile_loadd(7, b + 64, b_row);
        PF_DOT(1, 4, 7);
      }
      if (row_tiles > 1) {
        _tile_loadd(5, a + 16 * a_row, a_row);
        PF_DOT(2, 5, 6);
        if (col_tiles > 1) PF_DOT(3, 5, 7);
      }
    }
  }
  _tile_stored(0, c, c_row);
  if (col_tiles > 1) _tile_stored(1, c + 64, c_row);
  if (row_tiles > 1) _tile_stored(2, c + 16 * c_row, c_row);
  if (row_tiles > 1 && col_tiles > 1) _tile_stored(3, c + 16 * c_row + 64, c_row);
}

/* c[height, width] (+)= the products of all pairs, up to 32 by 32 and rounded up to whole tiles; of `words` of 4 bytes, a
 * multiple of 16. */
PF_ALWAYS_INLINE void pf_tiles(int64_t height, int64_t width, int64_t words, int count, const pf_tile_pair *pairs, int64_t a_row,
                               int64_t a_step, int64_t b_row, void *c, int64_t ldc, int resume) {
  if (height > 16 && width > 16)
    pf_tile_square(2, 2, words, count, pairs, a_row, a_step, b_row, c, ldc * 4, resume);
  else if (height > 16)
    pf_tile_square(2, 1, words, count, pairs, a_row, a_step, b_row, c, ldc * 4, resume);
  else if (width > 16)
    pf_tile_square(1, 2, words, count, pairs, a_row, a_step, b_row, c, ldc * 4, resume);
  else
    pf_tile_square(1, 1, words, count, pairs, a_row, a_step, b_row, c, ldc * 4, resume);
}

#endif
