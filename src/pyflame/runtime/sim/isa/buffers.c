/* Scalar loads, and accesses through a buffer's descriptor. */
#include "access.h"

/* The compiler reads whole words where a program asks for a byte, and four words for three: what it does not use may lie
 * behind an allocation's end, or may never have been written. */
static u32 slack(u64 address, u32 words) { return words == 4 && address % 16 == 0 ? 7 : 3; }

static void scalar_fetch(Wave *w, u64 address, u32 words, u32 *out) {
  const u32 bytes = 4 * words, spare = slack(address, words), needed = spare > 3 ? words - 1 : words;
  if (address & 3) fail(w, FAULT_ALIGNMENT, SPACE_GLOBAL, 0, address, bytes, 0);
  const Span *span = find_span(w, address);
  const u64 at = span ? address - span->base : 0;
  const u64 there = span ? (span->size - at < bytes ? span->size - at : bytes) : 0;
  if (there + spare < bytes || !there) fail(w, FAULT_ADDRESS, SPACE_GLOBAL, 0, address, bytes, 0);
  memset(out, 0xff, bytes);
  scalar_bytes(w, span, at, there, 4 * needed, (u8 *)out);
  if (w->launch->checks & COUNT) w->launch->counts[w->pc - 1].lines += (address + bytes - 1) / 128 - address / 128 + 1;
  if (!(w->launch->checks & CHECK_UNINITIALISED)) return;
  for (u32 k = 0; k < needed; k++) {
    u32 written = 0;
    for (u64 i = 4 * k; i < 4 * k + 4 && i < there; i++) written |= span->written[at + i];
    if (!written) fail(w, FAULT_UNINITIALISED, SPACE_GLOBAL, 0, address + 4 * k, bytes, 0);
  }
}

/* A byte or two of a scalar load, without the slack of words. */
static u32 scalar_part(Wave *w, const Inst *in, u64 address) {
  u32 out = 0;
  const Span *span = find_span(w, address);
  const u64 at = span ? address - span->base : 0;
  if (address % in->bytes) fail(w, FAULT_ALIGNMENT, SPACE_GLOBAL, 0, address, in->bytes, 0);
  if (!span || span->size - at < in->bytes) fail(w, FAULT_ADDRESS, SPACE_GLOBAL, 0, address, in->bytes, 0);
  scalar_bytes(w, span, at, in->bytes, in->bytes, (u8 *)&out);
  for (u32 i = 0; w->launch->checks & CHECK_UNINITIALISED && i < in->bytes; i++)
    if (!span->written[at + i]) fail(w, FAULT_UNINITIALISED, SPACE_GLOBAL, 0, address + i, in->bytes, 0);
  if (w->launch->checks & COUNT) w->launch->counts[w->pc - 1].lines++;
  return !(in->extra & SIGNED) ? out : in->bytes == 1 ? (u32)(i8)out : (u32)(i16)out;
}

static void put_words(Wave *w, const Inst *in, const u32 *out) {
  for (u32 k = 0; k < in->count; k++) {
    const Operand to = {SGPR, 0, 0, 0, in->dst[0].index + k, 0};
    write_s32(w, &to, out[k]);
  }
}

/* src[0]: the address, src[1]: a further offset. bytes: 1 or 2, else `count` words. */
void scalar_load(Wave *w, const Inst *in) {
  u32 out[16];
  const u64 address = read_s64(w, &in->src[0]) + read_s32(w, &in->src[1]) + (u64)(i64)in->offset;
  if (in->bytes) out[0] = scalar_part(w, in, address);
  else scalar_fetch(w, address, in->count, out);
  put_words(w, in, out);
}

/* --- descriptors --- */

typedef struct {
  u64 base;
  u32 stride, records, out_of_bounds;
  int scratch; /* gfx90a reaches a lane's scratch through a buffer: its address is 0, and it counts bytes of all lanes */
} Buffer;

static Buffer descriptor(Wave *w, const Operand *o) {
  const u32 *word = &w->s[o->index];
  const u32 swizzled = w->launch->generation >= 11 ? word[1] >> 30 : word[1] >> 31, adds_lane = word[3] >> 23 & 1;
  const u64 base = (u64)(word[1] & 0xffff) << 32 | word[0];
  const int scratch = swizzled && adds_lane && base < (u64)w->launch->scratch_bytes * PF_LANES;
  /* Compilers make such buffers for nothing else. */
  if ((swizzled || adds_lane) && !scratch) fail(w, FAULT_INSTRUCTION, SPACE_GLOBAL, 0, 0, 0, 0);
  return (Buffer){base, word[1] >> 16 & 0x3fff, word[2], word[3] >> 28 & 3, scratch};
}

/* Whether `bytes` lie within the buffer; offset: behind the element's start, with the scalar offset in `further`. */
static int in_range(const Wave *w, const Buffer *b, int by_index, u64 index, u64 offset, u64 further, u32 bytes) {
  enum { STRUCTURED, BY_INDEX, UNCHECKED, RAW };
  if (w->launch->generation >= 11) {
    switch (b->out_of_bounds) {
    case STRUCTURED: return index < b->records && (!b->stride || offset + bytes <= b->stride);
    case BY_INDEX: return index < b->records;
    case UNCHECKED: return b->records != 0;
    default: return index * b->stride + offset + further + bytes <= b->records;
    }
  }
  return b->stride && by_index ? index < b->records : offset + further + bytes <= b->records;
}

void scalar_buffer_load(Wave *w, const Inst *in) {
  const Buffer b = descriptor(w, &in->src[0]);
  const u64 bytes = (u64)b.records * (b.stride ? b.stride : 1);
  const u64 where = (u64)read_s32(w, &in->src[1]) + (u64)(i64)in->offset, offset = where & ~(u64)3;
  u32 out[16] = {0};
  if (in->bytes && where + in->bytes <= bytes) out[0] = scalar_part(w, in, b.base + where);
  for (u32 k = 0; k < in->count && !in->bytes; k++)
    if (offset + 4 * k + 4 <= bytes) scalar_fetch(w, (b.base & ~(u64)3) + offset + 4 * k, 1, &out[k]);
  put_words(w, in, out);
}

/* dpp: bit 0, a vector offset comes with the instruction; bit 1, an index. src[3]: the descriptor, src[4]: a scalar
 * offset. Words are checked one by one; what lies outside reads as 0 and is not written; atomics, all or nothing. */
static void buffer_access(Wave *w, const Inst *in, u32 how, Visit visit) {
  const Buffer b = descriptor(w, &in->src[3]);
  const u64 further = read_s32(w, &in->src[4]), exec = exec_of(w);
  const int by_offset = in->dpp & 1, by_index = in->dpp >> 1 & 1;
  u32 space[2][PF_LANES];
  const u32 *first = get_lanes(w, &in->src[0], 0, space[0]);
  const u32 *second = by_offset && by_index ? row(w, in->src[0].index + 1) : first;
  const u32 pieces = how == ATOMIC || in->bytes <= 4 ? 1 : in->bytes / 4, bytes = in->bytes / pieces;
  u64 inside[4] = {0}, everywhere = exec;
  Access a = {b.scratch ? SPACE_SCRATCH : SPACE_GLOBAL, in->bytes, how, {0}};
  if (b.scratch) {
    EACH_LANE a.address[l] = (u32)((by_offset ? second[l] : 0) + (u32)in->offset + (u32)((b.base + further) / PF_LANES));
    reach(w, in, &a, exec, visit);
    return;
  }
  EACH_LANE {
    const u64 index = by_index ? first[l] : 0, offset = (by_offset ? (u64)second[l] : 0) + (u64)(u32)in->offset;
    a.address[l] = b.base + further + index * b.stride + offset;
    for (u32 k = 0; k < pieces; k++)
      inside[k] |= (u64)in_range(w, &b, by_index, index, offset + 4 * k, further, bytes) << l;
  }
  for (u32 k = 0; k < pieces; k++) inside[k] &= exec, everywhere &= inside[k];
  if (everywhere == exec) { reach(w, in, &a, exec, visit); return; }
  Inst part = *in;
  part.bytes = (u8)(a.bytes = bytes);
  for (u32 k = 0; k < pieces; k++) {
    if (how != WRITE && part.dst[0].kind) {
      const u32 *old = row(w, part.dst[0].index);
      u32 kept[PF_LANES];
      const u32 keep = !(in->extra & HALF) || how == ATOMIC ? 0 : in->flags & D16_HIGH ? 0xffff : 0xffff0000;
      EACH_LANE kept[l] = old[l] & keep;
      put_lanes(w, exec & ~inside[k], part.dst[0].index, kept);
    }
    if (in->flags & TO_LDS) memset(row(w, SPARE_ROW), 0, 4 * PF_LANES), lanes_to_lds(w, &part, exec & ~inside[k]);
    reach(w, &part, &a, inside[k], visit);
    part.dst[0].index++, part.src[2].index++, part.offset += in->flags & TO_LDS ? 4 : 0;
    EACH_LANE a.address[l] += 4;
  }
}
void buffer_load(Wave *w, const Inst *in) { buffer_access(w, in, READ, in->flags & TO_LDS ? visit_to_lds : visit_load); }
void buffer_store(Wave *w, const Inst *in) { buffer_access(w, in, WRITE, visit_store); }
void buffer_atomic(Wave *w, const Inst *in) { buffer_access(w, in, ATOMIC, visit_atomic); }
