/* Loads and stores of lanes: global, flat, scratch and LDS. The table lists all instructions that reach memory. */
#include "access.h"

#define INLINE static inline __attribute__((always_inline))

/* --- data between pieces of memory and rows of registers --- */

INLINE void load_words(Wave *w, const Inst *in, const Piece *p, u32 words) {
  u32 out[4][PF_LANES];
  if (p->contiguous) {
    const u8 *from = p->data + p->at[0];
    if (words == 1) { memcpy(row(w, in->dst[0].index), from, 4 * PF_LANES); return; }
    EACH_LANE for (u32 k = 0; k < words; k++) memcpy(&out[k][l], from + 4 * ((u32)l * words + k), 4);
  } else {
    EACH_LANE for (u32 k = 0; k < words; k++) memcpy(&out[k][l], p->data + p->at[l] + 4 * k, 4);
  }
  for (u32 k = 0; k < words; k++) put_lanes(w, p->mask, in->dst[0].index + k, out[k]);
}

INLINE void load_part(Wave *w, const Inst *in, const Piece *p, u32 bytes) {
  u32 out[PF_LANES];
  EACH_LANE {
    u32 x = 0;
    memcpy(&x, p->data + p->at[l], bytes);
    out[l] = x;
  }
  if (in->extra & SIGNED) {
    if (bytes == 1) EACH_LANE out[l] = (u32)(i32)(i8)out[l];
    else EACH_LANE out[l] = (u32)(i32)(i16)out[l];
  }
  if (in->extra & HALF) { /* one half of the register changes */
    const u32 *old = row(w, in->dst[0].index);
    if (in->flags & D16_HIGH) EACH_LANE out[l] = out[l] << 16 | (old[l] & 0xffff);
    else EACH_LANE out[l] = (out[l] & 0xffff) | (old[l] & 0xffff0000);
  }
  put_lanes(w, p->mask, in->dst[0].index, out);
}

void visit_load(Wave *w, const Inst *in, const Piece *p) {
  switch (in->bytes) {
  case 1: load_part(w, in, p, 1); break;
  case 2: load_part(w, in, p, 2); break;
  case 4: load_words(w, in, p, 1); break;
  case 8: load_words(w, in, p, 2); break;
  case 12: load_words(w, in, p, 3); break;
  default: load_words(w, in, p, 4);
  }
}

INLINE void store_words(Wave *w, const Inst *in, const Piece *p, u32 words) {
  const u32 *from = row(w, in->src[2].index);
  if (p->contiguous) {
    u8 *to = p->data + p->at[0];
    if (words == 1) { memcpy(to, from, 4 * PF_LANES); return; }
    EACH_LANE for (u32 k = 0; k < words; k++) memcpy(to + 4 * ((u32)l * words + k), &from[k * PF_LANES + (u32)l], 4);
  } else {
    EACH_OF(p->mask) {
      const u32 l = (u32)LANE_OF;
      for (u32 k = 0; k < words; k++) memcpy(p->data + p->at[l] + 4 * k, &from[k * PF_LANES + l], 4);
    }
  }
}

INLINE void store_part(Wave *w, const Inst *in, const Piece *p, u32 bytes) {
  const u32 *from = row(w, in->src[2].index);
  const u32 shift = in->flags & D16_HIGH ? 16 : 0;
  EACH_OF(p->mask) {
    const u32 l = (u32)LANE_OF, x = from[l] >> shift;
    memcpy(p->data + p->at[l], &x, bytes);
  }
}

void stored_bytes(Wave *w, const Inst *in, u32 lane, u8 *out) {
  const u32 *from = row(w, in->src[2].index) + lane;
  for (u32 k = 0; 4 * k < in->bytes; k++) memcpy(out + 4 * k, from + k * PF_LANES, 4);
  if (in->flags & D16_HIGH) memcpy(out, out + 2, 2);
}

void visit_store(Wave *w, const Inst *in, const Piece *p) {
  switch (in->bytes) {
  case 1: store_part(w, in, p, 1); break;
  case 2: store_part(w, in, p, 2); break;
  case 4: store_words(w, in, p, 1); break;
  case 8: store_words(w, in, p, 2); break;
  case 12: store_words(w, in, p, 3); break;
  default: store_words(w, in, p, 4);
  }
}

void lanes_to_lds(Wave *w, const Inst *in, u64 mask) {
  const u8 bytes = in->bytes < 4 ? 4 : in->bytes;
  Inst store = {.bytes = bytes, .src[2] = {VGPR, 0, 0, 0, SPARE_ROW, 0}};
  Access a = {SPACE_LDS, bytes, WRITE, {0}};
  const u32 first = w->s[M0] & (w->launch->lds_bytes > 1 << 16 ? 0x3ffff : 0xffff);
  EACH_LANE a.address[l] = first + (u64)(u32)in->offset + in->omod * (u64)l;
  reach(w, &store, &a, mask, visit_store);
}

void visit_to_lds(Wave *w, const Inst *in, const Piece *p) {
  Inst load = *in;
  load.dst[0] = (Operand){VGPR, 0, 0, 0, SPARE_ROW, 0};
  visit_load(w, &load, p);
  lanes_to_lds(w, in, p->mask);
}

static void mem_load(Wave *w, const Inst *in) {
  Access a;
  addresses(w, in, &a);
  a.how = READ;
  reach(w, in, &a, exec_of(w), in->flags & TO_LDS ? visit_to_lds : visit_load);
}

static void mem_store(Wave *w, const Inst *in) {
  Access a;
  addresses(w, in, &a);
  a.how = WRITE;
  reach(w, in, &a, exec_of(w), visit_store);
}

#define ENTRY(NAME) {#NAME, NAME, "", ""}
const Entry MEMORY_TABLE[] = {
  ENTRY(mem_load), ENTRY(mem_store), ENTRY(mem_atomic), ENTRY(mem_load_transposed), ENTRY(ds_read2), ENTRY(ds_write2),
  ENTRY(ds_exchange2), ENTRY(ds_permute), ENTRY(ds_bpermute), ENTRY(ds_swizzle), ENTRY(ds_append), ENTRY(buffer_load), ENTRY(buffer_store),
  ENTRY(buffer_atomic), {"s_load", scalar_load, "", ""}, {"s_buffer_load", scalar_buffer_load, "", ""},
  ENTRY(mem_release), ENTRY(mem_acquire), ENTRY(scalar_forget),
};
const int MEMORY_COUNT = sizeof MEMORY_TABLE / sizeof *MEMORY_TABLE;
