/* Vector instructions by which lanes read each other, or that choose registers by number. */
#include "vector.h"

static u32 value_of_lane(Wave *w, const Operand *o, int lane) {
  return o->kind == VGPR ? row(w, o->index)[lane] : read_s32(w, o);
}
static void v_readfirstlane_b32(Wave *w, const Inst *in) {
  const u64 exec = exec_of(w);
  write_s32(w, &in->dst[0], value_of_lane(w, &in->src[0], exec ? __builtin_ctzll(exec) : 0));
}
/* Both of these work on a lane that is off, too. */
static void v_readlane_b32(Wave *w, const Inst *in) {
  write_s32(w, &in->dst[0], value_of_lane(w, &in->src[0], (int)(read_s32(w, &in->src[1]) & (PF_LANES - 1))));
}
static void v_writelane_b32(Wave *w, const Inst *in) {
  row(w, in->dst[0].index)[read_s32(w, &in->src[1]) & (PF_LANES - 1)] = read_s32(w, &in->src[0]);
}

/* In each row of 16 lanes, lane i reads the lane that the i-th four bits name; `across`: of the row's neighbour. op_sel:
 * the first bit lets it read lanes that are off; without it such a lane gives 0 (second bit) or nothing is written. */
static void permute_rows(Wave *w, const Inst *in, int across) {
  const u32 *const from = row(w, in->src[0].index);
  const u64 select = (u64)read_s32(w, &in->src[2]) << 32 | read_s32(w, &in->src[1]), exec = exec_of(w);
  const int fetch_inactive = in->src[0].mods & HIGH, zero = in->src[1].mods & HIGH;
  u32 out[PF_LANES], *const to = row(w, in->dst[0].index);
  EACH_LANE {
    const int source = ((l & ~15) ^ (across ? 16 : 0)) + (int)(select >> 4 * (l & 15) & 15);
    const int valid = fetch_inactive || exec >> source & 1;
    out[l] = valid ? from[source] : zero ? 0 : to[l];
  }
  put32(w, in, &in->dst[0], out);
}
static void v_permlane16_b32(Wave *w, const Inst *in) { permute_rows(w, in, 0); }
static void v_permlanex16_b32(Wave *w, const Inst *in) { permute_rows(w, in, 1); }
/* GFX12: each lane names the lane of the row that it reads. */
static void permute_by_lane(Wave *w, const Inst *in, int across) {
  const u32 *const from = row(w, in->src[0].index);
  const int fetch_inactive = in->src[0].mods & HIGH, zero = in->src[1].mods & HIGH;
  const u64 exec = exec_of(w);
  u32 space[PF_LANES], out[PF_LANES], *const to = row(w, in->dst[0].index);
  const u32 *const select = get32(w, in, &in->src[1], space, 0);
  EACH_LANE {
    const int source = ((l & ~15) ^ (across ? 16 : 0)) + (int)(select[l] & 15);
    const int valid = fetch_inactive || exec >> source & 1;
    out[l] = valid ? from[source] : zero ? 0 : to[l];
  }
  put32(w, in, &in->dst[0], out);
}
static void v_permlane16_var_b32(Wave *w, const Inst *in) { permute_by_lane(w, in, 0); }
static void v_permlanex16_var_b32(Wave *w, const Inst *in) { permute_by_lane(w, in, 1); }
static void v_permlane64_b32(Wave *w, const Inst *in) { /* does nothing in a wave of 32 */
  u32 out[PF_LANES];
  if (PF_LANES == 32) return;
  EACH_LANE out[l] = row(w, in->src[0].index)[l ^ 32];
  put32(w, in, &in->dst[0], out);
}

/* GFX950: the upper rows of `distance` lanes of the first register change places with the lower ones of the second. All
 * lanes must be on: what becomes of those that are off is not simulated. */
static void swap_rows(Wave *w, const Inst *in, int distance) {
  u32 *const a = row(w, in->dst[0].index), *const b = row(w, in->src[0].index);
  if (exec_of(w) != PF_ALL) fail(w, FAULT_INSTRUCTION, SPACE_CODE, 0, 0, 0, 0);
  EACH_LANE if (l & distance) {
    const u32 kept = a[l];
    a[l] = b[l - distance], b[l - distance] = kept;
  }
}
static void v_permlane16_swap_b32(Wave *w, const Inst *in) { swap_rows(w, in, 16); }
static void v_permlane32_swap_b32(Wave *w, const Inst *in) { swap_rows(w, in, 32); }

static void v_swap_b32(Wave *w, const Inst *in) {
  u32 *const a = row(w, in->dst[0].index), *const b = row(w, in->src[0].index);
  EACH_LANE {
    const u32 mask = w->mask[l], apart = (a[l] ^ b[l]) & mask;
    a[l] ^= apart, b[l] ^= apart;
  }
}
static void v_swap_b16(Wave *w, const Inst *in) {
  u32 *const a = row(w, in->dst[0].index), *const b = row(w, in->src[0].index);
  const int i = in->dst[0].mods & HIGH ? 16 : 0, j = in->src[0].mods & HIGH ? 16 : 0;
  EACH_LANE {
    const u32 x = a[l] >> i & 0xffff, y = b[l] >> j & 0xffff;
    if (!w->mask[l]) continue;
    a[l] = (a[l] & ~(0xffffu << i)) | y << i;
    b[l] = (b[l] & ~(0xffffu << j)) | x << j;
  }
}

/* Registers counted from the named one by M0. GFX9 has a mode for it, in which v_mov_b32 is this; decode.py sees to it
 * that nothing else runs in that mode. */
static u32 *indexed(Wave *w, u32 index) {
  if (index >= w->launch->vgprs) fail(w, FAULT_INSTRUCTION, SPACE_CODE, 0, index, 0, 0);
  return row(w, index);
}
static void move_row(Wave *w, u32 *to, const u32 *from) { EACH_LANE to[l] = w->mask[l] ? from[l] : to[l]; }
static void v_movreld_b32(Wave *w, const Inst *in) {
  u32 space[PF_LANES];
  move_row(w, indexed(w, in->dst[0].index + w->s[M0]), get32(w, in, &in->src[0], space, 0));
}
static void v_movrels_b32(Wave *w, const Inst *in) {
  move_row(w, row(w, in->dst[0].index), indexed(w, in->src[0].index + w->s[M0]));
}
static void v_movrelsd_b32(Wave *w, const Inst *in) {
  move_row(w, indexed(w, in->dst[0].index + w->s[M0]), indexed(w, in->src[0].index + w->s[M0]));
}
static void v_movrelsd_2_b32(Wave *w, const Inst *in) {
  const u32 m0 = w->s[M0];
  move_row(w, indexed(w, in->dst[0].index + (m0 >> 16 & 0x3ff)), indexed(w, in->src[0].index + (m0 & 0x3ff)));
}

enum { INDEX_SOURCE = 1 << 12, INDEX_RESULT = 8 << 12 };
static void s_set_gpr_idx_on(Wave *w, const Inst *in) {
  w->s[M0] = (w->s[M0] & ~0xf0ffu) | (read_s32(w, &in->src[0]) & 255) | ((u32)in->offset & 15) << 12;
}
static void s_set_gpr_idx_off(Wave *w, const Inst *in) { (void)w, (void)in; }
static void v_mov_b32_indexed(Wave *w, const Inst *in) {
  const u32 m0 = w->s[M0], by = m0 & 255;
  u32 space[PF_LANES];
  const u32 *const from = m0 & INDEX_SOURCE && in->src[0].kind == VGPR ? indexed(w, in->src[0].index + by)
                                                                       : get32(w, in, &in->src[0], space, 0);
  move_row(w, indexed(w, in->dst[0].index + (m0 & INDEX_RESULT ? by : 0)), from);
}

const Entry LANES_TABLE[] = {
  {"v_readfirstlane_b32", v_readfirstlane_b32, "U32", "U32"}, {"v_readlane_b32", v_readlane_b32, "U32", "U32 U32"},
  {"v_writelane_b32", v_writelane_b32, "U32", "U32 U32"},
  {"v_permlane16_b32", v_permlane16_b32, "U32", "U32 U32 U32"},
  {"v_permlanex16_b32", v_permlanex16_b32, "U32", "U32 U32 U32"},
  {"v_permlane16_var_b32", v_permlane16_var_b32, "U32", "U32 U32"},
  {"v_permlanex16_var_b32", v_permlanex16_var_b32, "U32", "U32 U32"}, {"v_permlane64_b32", v_permlane64_b32, "U32", "U32"},
  {"v_permlane16_swap_b32", v_permlane16_swap_b32, "U32", "U32"},
  {"v_permlane32_swap_b32", v_permlane32_swap_b32, "U32", "U32"}, {"v_swap_b32", v_swap_b32, "U32", "U32"},
  {"v_swap_b16", v_swap_b16, "U16", "U16"},
  {"v_movreld_b32", v_movreld_b32, "U32", "U32"}, {"v_movrels_b32", v_movrels_b32, "U32", "U32"},
  {"v_movrelsd_b32", v_movrelsd_b32, "U32", "U32"}, {"v_movrelsd_2_b32", v_movrelsd_2_b32, "U32", "U32"},
  {"s_set_gpr_idx_on", s_set_gpr_idx_on, "", "U32 INDEXED"}, {"s_set_gpr_idx_off", s_set_gpr_idx_off, "", ""},
  {"v_mov_b32_indexed", v_mov_b32_indexed, "U32", "U32"},
};
const int LANES_COUNT = sizeof LANES_TABLE / sizeof *LANES_TABLE;
