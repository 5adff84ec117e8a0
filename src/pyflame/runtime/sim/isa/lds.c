/* What only the LDS unit does: two addresses in one instruction, exchanges between lanes, counters of a wave. */
#include "access.h"

/* src[4]: the second offset; results and data of the second follow those of the first. */
static void two(Wave *w, const Inst *in, u32 how, Visit visit) {
  Inst one = *in;
  Access a, b;
  addresses(w, in, &a);
  one.offset = (i32)in->src[4].value;
  addresses(w, &one, &b);
  a.how = b.how = how;
  one.dst[0].index += in->bytes / 4;
  one.src[2] = in->src[3];
  one.src[3].kind = NO_OPERAND;
  reach(w, in, &a, exec_of(w), visit);
  reach(w, &one, &b, exec_of(w), visit);
}
void ds_read2(Wave *w, const Inst *in) { two(w, in, READ, visit_load); }
void ds_write2(Wave *w, const Inst *in) { two(w, in, WRITE, visit_store); }
void ds_exchange2(Wave *w, const Inst *in) { two(w, in, ATOMIC, visit_atomic); }

/* --- lanes that give each other values; the LDS itself is not touched --- */

/* GFX10 and later exchange within 32 lanes, also in waves of 64. */
static int lanes_together(const Wave *w) { return w->launch->generation >= 10 ? 32 : PF_LANES; }

/* Each lane fetches from the lane that src[0] names (times 4). A lane that is off gives 0. */
void ds_bpermute(Wave *w, const Inst *in) {
  u32 space[2][PF_LANES], out[PF_LANES];
  const u32 *from = get_lanes(w, &in->src[0], 0, space[0]), *data = get_lanes(w, &in->src[2], 0, space[1]);
  const int together = lanes_together(w);
  EACH_LANE {
    const u32 source = ((u32)l & ~(u32)(together - 1)) | ((from[l] + (u32)in->offset) >> 2 & (u32)(together - 1));
    out[l] = w->mask[source] & data[source];
  }
  put_lanes(w, exec_of(w), in->dst[0].index, out);
}

/* Each lane sends to the lane that src[0] names (times 4); of several the last one counts. */
void ds_permute(Wave *w, const Inst *in) {
  u32 space[2][PF_LANES], out[PF_LANES] = {0};
  const u32 *to = get_lanes(w, &in->src[0], 0, space[0]), *data = get_lanes(w, &in->src[2], 0, space[1]);
  const int together = lanes_together(w);
  EACH_OF(exec_of(w)) {
    const int l = LANE_OF;
    out[(l & ~(together - 1)) | ((to[l] + (u32)in->offset) >> 2 & (u32)(together - 1))] = data[l];
  }
  put_lanes(w, exec_of(w), in->dst[0].index, out);
}

/* The lane that lane `l` reads from under a pattern. */
static int swizzled(u32 pattern, int l) {
  const int low = l & 31, group = l & 32;
  if (pattern >= 0xe000) { /* FFT: bits in reverse order, some of them kept */
    const u32 keep = pattern & 31;
    int reversed = 0;
    for (int b = 0; b < 5; b++) reversed |= (low >> b & 1) << (4 - b);
    return group | (reversed >> __builtin_popcount(keep)) | (low & (int)keep);
  }
  if (pattern >= 0xc000) { /* rotate (a mask of lanes that stay is not shown by the disassembler, nor used) */
    const int by = (int)(pattern >> 5 & 31);
    return group | ((pattern >> 10 & 1 ? low - by : low + by) & 31);
  }
  if (pattern & 0x8000) return (l & ~3) | (int)(pattern >> 2 * (l & 3) & 3); /* within quads */
  return group | (((low & (int)(pattern & 31)) | (int)(pattern >> 5 & 31)) ^ (int)(pattern >> 10 & 31));
}
void ds_swizzle(Wave *w, const Inst *in) {
  u32 space[PF_LANES], out[PF_LANES];
  const u32 *data = get_lanes(w, &in->src[0], 0, space);
  EACH_LANE {
    const int source = swizzled((u32)in->offset, l);
    out[l] = w->mask[source] & data[source];
  }
  put_lanes(w, exec_of(w), in->dst[0].index, out);
}

/* --- append and consume: a counter in the LDS moves by the number of lanes that are on --- */

static void visit_append(Wave *w, const Inst *in, const Piece *p) {
  u32 old, now, out[PF_LANES];
  const u32 lanes = (u32)__builtin_popcountll(exec_of(w));
  u8 *at = p->data + p->at[0];
  memcpy(&old, at, 4);
  now = in->count ? old - lanes : old + lanes;
  memcpy(at, &now, 4);
  EACH_LANE out[l] = old;
  put_lanes(w, exec_of(w), in->dst[0].index, out);
}
void ds_append(Wave *w, const Inst *in) {
  Access a = {SPACE_LDS, 4, ATOMIC, {0}};
  const u64 exec = exec_of(w);
  EACH_LANE a.address[l] = (w->s[M0] & 0xffff) + (u64)(u32)in->offset;
  reach(w, in, &a, exec & -exec, visit_append);
}
