/* Loads that transpose: the lanes of a group read a tile row by row, and each gets a column of it.
 *
 * bits: of an element. received(lane l, element j), by what the lanes of its group read, n elements each:
 *   gfx12, 16 bits   groups of 8 lanes:   lane j, element l%8 (measured on gfx1201: tessera's RDNA 4 fragment notes)
 *   gfx12, 8 bits    groups of 16 lanes:  lane j/4*8 + l/8*4 + j%4, element l%8 (ROCm/rocm-systems, rocjitsu)
 *   gfx950           groups of 16 lanes:  lane j*16/n + l/n, element l%n: a tile of n rows, 16 wide (HipKittens, Triton)
 */
#include "access.h"

static void source_of(const Wave *w, int bits, int n, int l, int j, int *lane, int *element) {
  const int in_16 = l & 15;
  if (w->launch->generation >= 12 && bits == 16) *lane = (l & ~7) + j, *element = l & 7;
  else if (w->launch->generation >= 12) *lane = (l & ~15) + j / 4 * 8 + in_16 / 8 * 4 + j % 4, *element = l & 7;
  else *lane = (l & ~15) + j * 16 / n + in_16 / n, *element = in_16 % n;
}

static u32 field(const u32 (*words)[PF_LANES], int lane, int at, int bits) {
  const u32 low = words[at / 32][lane] >> at % 32;
  const u32 high = at % 32 + bits > 32 ? words[at / 32 + 1][lane] << (32 - at % 32) : 0;
  return (low | high) & ((1u << bits) - 1);
}

/* extra: bits of an element. All lanes must be on. */
void mem_load_transposed(Wave *w, const Inst *in) {
  const int bits = in->extra, n = in->bytes * 8 / bits, words = in->bytes / 4;
  u32 read[4][PF_LANES], out[4][PF_LANES] = {0};
  Inst load = *in;
  Access a;
  if (exec_of(w) != PF_ALL) fail(w, FAULT_INSTRUCTION, in->space, 0, 0, 0, 0);
  load.extra = 0;
  addresses(w, &load, &a);
  a.how = READ;
  reach(w, &load, &a, PF_ALL, visit_load);
  memcpy(read, row(w, in->dst[0].index), sizeof read[0] * (size_t)words);
  EACH_LANE for (int j = 0; j < n; j++) {
    int lane, element;
    source_of(w, bits, n, l, j, &lane, &element);
    const u32 x = field(read, lane, element * bits, bits);
    out[j * bits / 32][l] |= x << j * bits % 32;
    if (j * bits % 32 + bits > 32) out[j * bits / 32 + 1][l] |= x >> (32 - j * bits % 32);
  }
  memcpy(row(w, in->dst[0].index), out, sizeof out[0] * (size_t)words);
}
