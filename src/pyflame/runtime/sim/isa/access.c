/* Where an access falls and whether it may: bounds, alignment, bytes that nothing has written, races. */
#include "access.h"

#include <stdlib.h>

#define INLINE static inline __attribute__((always_inline))

/* --- bytes that were never written --- */

INLINE int gathered_written(const u8 *written, const u64 *at, u32 bytes) {
  u64 all = ~(u64)0, more = ~(u64)0;
  EACH_LANE {
    u64 first = 0x0101010101010101, second = 0x0101010101010101;
    memcpy(&first, written + at[l], bytes < 8 ? bytes : 8);
    if (bytes > 8) memcpy(&second, written + at[l] + 8, bytes - 8);
    all &= first, more &= second;
  }
  return (all & more & 0x0101010101010101) == 0x0101010101010101;
}

static int block_written(const u8 *written, u64 bytes) {
  u8 all = 1;
  for (u64 i = 0; i < bytes; i++) all &= written[i];
  return all;
}

static int all_written(const Piece *p, u32 bytes) {
  if (p->contiguous) return block_written(p->written + p->at[0], (u64)bytes * PF_LANES);
  switch (bytes) {
  case 1: return gathered_written(p->written, p->at, 1);
  case 2: return gathered_written(p->written, p->at, 2);
  case 4: return gathered_written(p->written, p->at, 4);
  case 8: return gathered_written(p->written, p->at, 8);
  case 12: return gathered_written(p->written, p->at, 12);
  default: return gathered_written(p->written, p->at, 16);
  }
}

/* Name the first byte. In the LDS another wave may be about to write it: then it is a race. */
static void unwritten(Wave *w, const Access *a, const Piece *p) {
  const int later = p->space == SPACE_LDS && w->launch->checks & CHECK_RACES && w->group->waves > 1;
  EACH_OF(p->mask) {
    const int l = LANE_OF;
    for (u32 i = 0; i < a->bytes; i++) {
      if (p->written[p->at[l] + i]) continue;
      (later ? fail_at_barrier : fail)(w, FAULT_UNINITIALISED, p->space, l, a->address[l] + i, a->bytes, 0);
      return;
    }
  }
}

/* Registers that the compiler keeps in scratch, at the same address in all lanes, are also read for lanes that never
 * stored them, whose values are then not used: there only arrays that threads index can be checked. */
static int must_be_written(const Wave *w, const Inst *in, const Access *a, const Piece *p) {
  if (a->how == WRITE || !(w->launch->checks & CHECK_UNINITIALISED)) return 0;
  return p->space != SPACE_SCRATCH || in->src[0].kind == VGPR;
}

INLINE void mark_lanes(u8 *written, const u64 *at, u64 mask, u32 bytes) {
  if (mask == PF_ALL) EACH_LANE memset(written + at[l], 1, bytes);
  else EACH_OF(mask) memset(written + at[LANE_OF], 1, bytes);
}

static void mark_written(const Piece *p, u32 bytes) {
  if (p->contiguous) { memset(p->written + p->at[0], 1, (u64)bytes * PF_LANES); return; }
  switch (bytes) {
  case 1: mark_lanes(p->written, p->at, p->mask, 1); break;
  case 2: mark_lanes(p->written, p->at, p->mask, 2); break;
  case 4: mark_lanes(p->written, p->at, p->mask, 4); break;
  case 8: mark_lanes(p->written, p->at, p->mask, 8); break;
  case 12: mark_lanes(p->written, p->at, p->mask, 12); break;
  default: mark_lanes(p->written, p->at, p->mask, 16);
  }
}

/* --- races: who touched each byte of the LDS since the last barrier --- */

/* A byte of `writers`: 0 nobody, n + 1 the wave n; with ATOMICALLY, by atomics. Of `readers`: 0, n + 1, or SEVERAL. */
enum { ATOMICALLY = 0x80, SEVERAL = 0xff };

static int touch(u8 *writers, u8 *readers, u64 count, u8 me, u32 how) {
  u8 bad = 0;
  if (how == READ) {
    for (u64 i = 0; i < count; i++) {
      const u8 w = writers[i], r = readers[i];
      bad |= (w != 0) & ((w & 0x7f) != me);
      readers[i] = (r == 0) | (r == me) ? me : SEVERAL;
    }
  } else if (how == WRITE) {
    for (u64 i = 0; i < count; i++) {
      const u8 w = writers[i], r = readers[i];
      bad |= ((w != 0) & ((w & 0x7f) != me)) | ((r != 0) & (r != me));
      writers[i] = me;
    }
  } else {
    const u8 mine = ATOMICALLY | me;
    for (u64 i = 0; i < count; i++) {
      const u8 w = writers[i], r = readers[i];
      bad |= ((w != 0) & !(w & ATOMICALLY) & (w != me)) | ((r != 0) & (r != me));
      writers[i] = w == 0 ? mine : (w == me) | (w == mine) ? w : SEVERAL;
    }
  }
  return bad;
}

static void race(Wave *w, const Access *a, const Piece *p, u8 me) {
  const u8 *writers = w->group->writers, *readers = w->group->readers;
  EACH_OF(p->mask) {
    const int l = LANE_OF;
    for (u32 i = 0; i < a->bytes; i++) {
      const u8 wrote = writers[p->at[l] + i], read = readers[p->at[l] + i], writer = wrote & 0x7f;
      const int by_writer = wrote && writer != me && !(a->how == ATOMIC && wrote & ATOMICALLY);
      if (!by_writer && (a->how == READ || !read || read == me)) continue;
      const u8 other = by_writer ? (writer == 0x7f ? SEVERAL : writer) : read;
      w->launch->fault.other = other == SEVERAL ? ~0u : other - 1u;
      w->launch->fault.other_write = (u32)by_writer;
      fail(w, FAULT_RACE, SPACE_LDS, l, a->address[l] + i, a->bytes, a->how != READ);
    }
  }
}

/* bytes: of each lane's piece; a whole row of lanes counts as one piece. */
INLINE void touch_lanes(Wave *w, const Access *a, const Piece *p, u32 lanes, u32 bytes) {
  const Group *g = w->group;
  const u8 me = (u8)(w->number + 1);
  u8 writers[PF_LANES * 16], readers[PF_LANES * 16];
  for (u32 l = 0; l < lanes; l++) memcpy(writers + l * bytes, g->writers + p->at[l], bytes);
  for (u32 l = 0; l < lanes; l++) memcpy(readers + l * bytes, g->readers + p->at[l], bytes);
  if (touch(writers, readers, (u64)bytes * lanes, me, a->how)) race(w, a, p, me);
  const u8 *from = a->how == READ ? readers : writers;
  u8 *to = a->how == READ ? g->readers : g->writers;
  for (u32 l = 0; l < lanes; l++) memcpy(to + p->at[l], from + l * bytes, bytes);
}

static void check_race(Wave *w, const Access *a, const Piece *p) {
  Group *g = w->group;
  const u64 size = w->launch->lds_bytes;
  if (g->touched_epoch != g->epoch) {
    memset(g->writers, 0, size), memset(g->readers, 0, size);
    g->touched_epoch = g->epoch;
  }
  if (p->contiguous) { touch_lanes(w, a, p, 1, a->bytes * PF_LANES); return; }
  switch (a->bytes) {
  case 1: touch_lanes(w, a, p, PF_LANES, 1); break;
  case 2: touch_lanes(w, a, p, PF_LANES, 2); break;
  case 4: touch_lanes(w, a, p, PF_LANES, 4); break;
  case 8: touch_lanes(w, a, p, PF_LANES, 8); break;
  case 12: touch_lanes(w, a, p, PF_LANES, 12); break;
  default: touch_lanes(w, a, p, PF_LANES, 16);
  }
}

/* --- races: who stored each byte of global memory in this launch --- */

/* Whether the thread `me` follows the one that stored a byte: it is the same one, or of its group and behind a barrier. */
static int follows(const Group *g, u32 owner, u32 me) {
  return !owner || owner == me || (owner > g->block && owner <= g->phase);
}

/* Stores lane by lane, as lanes may meet in one instruction. Two threads may store the same value. */
static void own(Wave *w, const Inst *in, const Access *a, const Piece *p) {
  const Group *g = w->group;
  EACH_OF(p->mask) {
    const u32 l = (u32)LANE_OF, me = g->phase + w->number * PF_LANES + l + 1;
    u8 bytes[16];
    stored_bytes(w, in, l, bytes);
    for (u32 i = 0; i < a->bytes; i++) {
      u8 *to = p->data + p->at[l] + i;
      u32 *owner = p->owners + p->at[l] + i;
      if (!follows(g, *owner, me) && *to != bytes[i])
        fail(w, FAULT_RACE, SPACE_GLOBAL, (int)l, a->address[l] + i, a->bytes, 1);
      *to = bytes[i], *owner = me;
    }
  }
}

/* --- counting --- */

/* Lines of 128 bytes, as in the L2 of both targets, that the lanes together touch. */
static void count_lines(Wave *w, const Access *a, u64 mask) {
  u64 seen[2 * PF_LANES];
  u32 count = 0;
  EACH_OF(mask) {
    const u64 first = a->address[LANE_OF] / 128, last = (a->address[LANE_OF] + a->bytes - 1) / 128;
    for (u64 line = first; line <= last; line++) {
      u32 i = 0;
      while (i < count && seen[i] != line) i++;
      if (i == count) seen[count++] = line;
    }
  }
  const u64 packed = ((u64)__builtin_popcountll(mask) * a->bytes + 127) / 128;
  w->launch->counts[w->pc - 1].lines += count;
  w->launch->counts[w->pc - 1].least += packed < count ? packed : count; /* lanes may read the same */
}

/* The LDS has 32 banks of 4 bytes, each of which serves one word at a time. The lanes go in order, as many together as
 * 128 bytes take; words that share a bank wait for each other, the same word is read once for all. */
static void count_conflicts(Wave *w, const Access *a, u64 mask) {
  const int together = a->bytes <= 4 ? 32 : (int)(128 / a->bytes);
  u64 further = 0, passes = 0;
  for (int start = 0; start < PF_LANES; start += together) {
    u64 words[PF_LANES * 5];
    u32 of_bank[32] = {0}, count = 0, most = 1;
    for (int l = start; l < start + together && l < PF_LANES; l++) {
      if (!(mask >> l & 1)) continue;
      for (u64 word = a->address[l] / 4; word <= (a->address[l] + a->bytes - 1) / 4; word++) {
        u32 i = 0;
        while (i < count && words[i] != word) i++;
        if (i < count) continue;
        words[count++] = word;
        if (++of_bank[word % 32] > most) most = of_bank[word % 32];
      }
    }
    passes += count != 0;
    further += most - 1;
  }
  w->launch->counts[w->pc - 1].passes += passes;
  w->launch->counts[w->pc - 1].conflicts += further;
}

/* --- the access --- */

const Span *find_span(Wave *w, u64 address) {
  const Launch *launch = w->launch;
  if (w->last && address - w->last->base < w->last->size) return w->last;
  u64 low = 0, high = launch->span_count;
  while (low < high) {
    const u64 middle = (low + high) / 2;
    if (launch->spans[middle].base <= address) low = middle + 1;
    else high = middle;
  }
  const Span *found = low ? &launch->spans[low - 1] : 0;
  return found && address - found->base < found->size ? w->last = found : 0;
}

/* Those of the active lanes that lie in `size` bytes from `base`; fills in p->at. */
static u64 lanes_within(Piece *p, const u64 *address, u64 active, u64 base, u64 size, u32 bytes) {
  u8 inside[PF_LANES];
  if (size < bytes) return 0;
  const u64 last = size - bytes;
  EACH_LANE {
    p->at[l] = address[l] - base;
    inside[l] = p->at[l] <= last;
  }
  const u64 mask = pack_bits(inside) & active;
  if (mask && mask != PF_ALL) {
    const u64 first = p->at[__builtin_ctzll(mask)];
    EACH_LANE p->at[l] = mask >> l & 1 ? p->at[l] : first;
  }
  return mask;
}

static void visit_piece(Wave *w, const Inst *in, const Access *a, Piece *p, Visit visit) {
  u8 in_row = p->mask == PF_ALL;
  if (in_row) EACH_LANE in_row &= p->at[l] == p->at[0] + (u64)l * a->bytes;
  p->contiguous = in_row;
  if (p->space == SPACE_LDS && w->launch->checks & CHECK_RACES && w->group->waves > 1) check_race(w, a, p);
  if (must_be_written(w, in, a, p) && !all_written(p, a->bytes)) unwritten(w, a, p);
  if (p->pages) follow(w, in, a, p);
  if (p->owners) own(w, in, a, p);
  else if (!p->pages || a->how != WRITE) visit(w, in, p);
  if (a->how != READ) mark_written(p, a->bytes);
}

static u32 *owners_of(Wave *w, const Span *span) {
  u32 **found = &w->group->shared->owners[span - w->launch->spans];
  if (!*found && !(*found = calloc(span->size, sizeof **found))) fail(w, FAULT_MEMORY, SPACE_GLOBAL, 0, 0, 0, 1);
  return *found;
}

static void reach_global(Wave *w, const Inst *in, const Access *a, u64 active, Visit visit) {
  const u32 modes = w->launch->modes;
  if (w->launch->checks & COUNT) count_lines(w, a, active);
  Piece p;
  p.space = SPACE_GLOBAL, p.pages = 0;
  while (active) {
    const int first = __builtin_ctzll(active);
    const Span *span = find_span(w, a->address[first]);
    p.mask = span ? lanes_within(&p, a->address, active, span->base, span->size, a->bytes) : 0;
    if (!(p.mask >> first & 1)) fail(w, FAULT_ADDRESS, SPACE_GLOBAL, first, a->address[first], a->bytes, a->how != READ);
    p.data = span->data, p.written = span->written, p.owners = 0;
    if (__builtin_expect(modes & INTERLEAVE, 0)) p.pages = pages_of(w, span);
    else if (a->how == WRITE && w->launch->checks & CHECK_RACES && !w->launch->dies) p.owners = owners_of(w, span);
    if (__builtin_expect(modes & STALE, 0)) reach_cached(w, in, a, span, &p);
    visit_piece(w, in, a, &p, visit);
    if (__builtin_expect(modes & STALE, 0)) leave_cached(w, in, a, span, &p);
    active &= ~p.mask;
  }
}

static void reach_local(Wave *w, const Inst *in, const Access *a, u32 space, u64 active, Visit visit) {
  const Launch *launch = w->launch;
  const u64 size = space == SPACE_LDS ? launch->lds_bytes : launch->scratch_bytes;
  if (space == SPACE_LDS && launch->checks & COUNT) count_conflicts(w, a, active);
  Piece p;
  p.space = space, p.owners = 0, p.pages = 0;
  p.mask = lanes_within(&p, a->address, active, 0, size, a->bytes);
  if (p.mask != active) {
    const int lane = __builtin_ctzll(active & ~p.mask);
    fail(w, FAULT_ADDRESS, space, lane, a->address[lane], a->bytes, a->how != READ);
  }
  if (space == SPACE_LDS) {
    p.data = w->group->lds, p.written = w->group->lds_written;
  } else {
    p.data = w->scratch, p.written = w->scratch_written;
    const u64 first = (u64)__builtin_ctzll(active);
    EACH_LANE p.at[l] += size * (active >> l & 1 ? (u64)l : first);
  }
  visit_piece(w, in, a, &p, visit);
}

void reach(Wave *w, const Inst *in, Access *a, u64 active, Visit visit) {
  if (!active) return;
  /* Registers of threads that have returned are saved to scratch with all others. */
  if (__builtin_expect(w->missed & active, 0) && a->space != SPACE_SCRATCH) check_missed(w, active);
  if (a->how == ATOMIC) EACH_OF(active) {
    const u64 address = a->address[LANE_OF];
    if (address % a->bytes) fail(w, FAULT_ALIGNMENT, a->space, LANE_OF, address, a->bytes, 1);
  }
  if (a->space == SPACE_GLOBAL) { reach_global(w, in, a, active, visit); return; }
  if (a->space != SPACE_FLAT) { reach_local(w, in, a, a->space, active, visit); return; }
  u8 shared[PF_LANES], private[PF_LANES];
  EACH_LANE shared[l] = a->address[l] >> 32 == SHARED_BASE >> 32;
  EACH_LANE private[l] = a->address[l] >> 32 == PRIVATE_BASE >> 32;
  const u64 to_lds = pack_bits(shared) & active, to_scratch = pack_bits(private) & active;
  if (active & ~(to_lds | to_scratch)) reach_global(w, in, a, active & ~(to_lds | to_scratch), visit);
  if (to_lds | to_scratch) EACH_LANE a->address[l] = (u32)a->address[l];
  if (to_lds) reach_local(w, in, a, SPACE_LDS, to_lds, visit);
  if (to_scratch) reach_local(w, in, a, SPACE_SCRATCH, to_scratch, visit);
}

/* src[0]: the vector address, of 64 bits unless a scalar one, src[1], comes with it. count: bytes that each lane lies
 * behind the one before, of instructions that add the lane's number. */
void addresses(Wave *w, const Inst *in, Access *a) {
  const Operand *vector = &in->src[0], *scalar = &in->src[1];
  u32 space[PF_LANES];
  const u64 offset = (u64)(i64)in->offset;
  a->space = in->space, a->bytes = in->bytes;
  if (in->space == SPACE_LDS) {
    const u32 *low = get_lanes(w, vector, 0, space);
    const u32 bits = in->count ? 0xffff : ~0u; /* of M0 */
    EACH_LANE a->address[l] = (u32)((low[l] & bits) + (u32)in->offset);
  } else if (in->space == SPACE_SCRATCH) { /* 32 bits, and each lane has its own */
    const u32 *low = get_lanes(w, vector, 0, space);
    const u32 base = read_s32(w, scalar) + (u32)in->offset;
    EACH_LANE a->address[l] = low[l] + base;
  } else if (scalar->kind == SGPR) {
    const u32 *low = get_lanes(w, vector, 0, space);
    const u64 base = read_s64(w, scalar) + offset;
    EACH_LANE a->address[l] = base + low[l];
  } else {
    const u32 *low = row(w, vector->index), *high = row(w, vector->index + 1);
    EACH_LANE a->address[l] = ((u64)high[l] << 32 | low[l]) + offset;
  }
  if (in->count) EACH_LANE a->address[l] += (u64)l * in->count;
}
