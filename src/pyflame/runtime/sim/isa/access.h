/* An access of a wave's lanes to memory, checked: what the files that move bytes share. */
#ifndef PF_ACCESS_H
#define PF_ACCESS_H

#include "sim.h"

enum { READ, WRITE, ATOMIC };
enum { SPARE_ROW = 512 }; /* four rows behind the registers (inst.py), for words on their way */

/* Lanes whose bytes lie in one allocation, in the LDS, or in the wave's scratch. */
typedef struct {
  u8 *data, *written;
  u64 mask;            /* these lanes */
  u32 space;
  u32 *owners;         /* global memory that is stored to, if races are looked for: by whom, in this launch */
  struct Shadow **pages; /* global memory, with INTERLEAVE: who touched it in this launch (shadow.c) */
  u32 contiguous;      /* all lanes are on and each one's bytes follow those of the one before */
  u64 at[PF_LANES];    /* where each lane's bytes lie; a lane that is off repeats the first that is on */
} Piece;

/* What a wave's lanes ask for: so many bytes at an address each. */
typedef struct {
  u32 space, bytes, how;
  u64 address[PF_LANES];
} Access;

typedef void (*Visit)(Wave *w, const Inst *in, const Piece *p);

/* What the groups of a launch share; arrays by span, filled when first used. */
typedef struct Shared {
  u32 **owners;            /* for each byte the thread that stored it (access.c) */
  struct Shadow ***pages;  /* for each byte who touched it last (shadow.c) */
  struct Sync *syncs;      /* what was published where, by address (shadow.c) */
  u64 sync_slots, sync_used;
  u64 waves, groups;       /* of the launch; no waves: too many to follow */
  struct Copy *copies;     /* of each die and span (caches.c) */
} Shared;

/* shadow.c: races in global memory. */
struct Shadow **pages_of(Wave *w, const Span *span);
void follow(Wave *w, const Inst *in, const Access *a, const Piece *p); /* a store is done as well */
void follow_scalar(Wave *w, const Span *span, u64 at, u64 bytes);
void forget_group(Group *g);
void free_shadows(Launch *launch, Shared *shared);
void mem_release(Wave *w, const Inst *in);
void mem_acquire(Wave *w, const Inst *in);

/* caches.c: lines that are stale until an acquire. */
void reach_cached(Wave *w, const Inst *in, const Access *a, const Span *span, Piece *p);
void leave_cached(Wave *w, const Inst *in, const Access *a, const Span *span, const Piece *p);
void scalar_bytes(Wave *w, const Span *span, u64 at, u64 bytes, u64 needed, u8 *out); /* needed: bytes that are used */
void write_back(Launch *launch, Shared *shared, u32 die);
void forget_lines(Launch *launch, Shared *shared, u32 die);
void scalar_forget(Wave *w, const Inst *in);
void scalar_finish(Launch *launch);
void free_caches(Launch *launch, Shared *shared);
static inline u32 die_of(const Wave *w) { return w->launch->dies ? w->group->index % w->launch->dies : 0; }

/* Check the access of the lanes in `active`, then hand it to `visit`, piece by piece. */
void reach(Wave *w, const Inst *in, Access *access, u64 active, Visit visit);
/* Addresses of a global, flat, scratch or LDS instruction from its operands. */
void addresses(Wave *w, const Inst *in, Access *access);
const Span *find_span(Wave *w, u64 address);

/* EXEC, or a part of it, as a word of ones or zeros per lane. */
static inline const u32 *lane_words(const Wave *w, u64 mask, u32 *space) {
  if (mask == exec_of(w)) return w->mask;
  EACH_LANE space[l] = (u32)-(i32)(mask >> l & 1);
  return space;
}
/* Rows of results, under a mask. */
static inline void put_lanes(Wave *w, u64 mask, u32 index, const u32 *out) {
  u32 space[PF_LANES];
  const u32 *on = lane_words(w, mask, space);
  u32 *to = row(w, index);
  EACH_LANE to[l] = on[l] ? out[l] : to[l];
}
/* What a register or a constant holds in each lane. */
static inline const u32 *get_lanes(Wave *w, const Operand *o, u32 plus, u32 *space) {
  if (o->kind == VGPR) return row(w, o->index + plus);
  const u32 value = plus ? (u32)(read_s64(w, o) >> 32) : read_s32(w, o);
  EACH_LANE space[l] = value;
  return space;
}
#define EACH_OF(mask) for (u64 m_ = (mask); m_; m_ &= m_ - 1)
#define LANE_OF __builtin_ctzll(m_)

/* In `extra` of a load or a store. */
enum { SIGNED = 1, HALF = 2 };
void visit_load(Wave *w, const Inst *in, const Piece *p);
void visit_store(Wave *w, const Inst *in, const Piece *p);
/* What a store has for a lane. */
void stored_bytes(Wave *w, const Inst *in, u32 lane, u8 *out);
void visit_atomic(Wave *w, const Inst *in, const Piece *p);
/* Loads whose words go on to the LDS, by way of the spare rows: from M0 on, `omod` bytes from lane to lane. */
void visit_to_lds(Wave *w, const Inst *in, const Piece *p);
void lanes_to_lds(Wave *w, const Inst *in, u64 mask);

/* Handlers, listed in the table of memory.c. */
void mem_atomic(Wave *w, const Inst *in);
void mem_load_transposed(Wave *w, const Inst *in);
void ds_read2(Wave *w, const Inst *in);
void ds_write2(Wave *w, const Inst *in);
void ds_exchange2(Wave *w, const Inst *in);
void ds_permute(Wave *w, const Inst *in);
void ds_bpermute(Wave *w, const Inst *in);
void ds_swizzle(Wave *w, const Inst *in);
void ds_append(Wave *w, const Inst *in);
void scalar_load(Wave *w, const Inst *in);
void scalar_buffer_load(Wave *w, const Inst *in);
void buffer_load(Wave *w, const Inst *in);
void buffer_store(Wave *w, const Inst *in);
void buffer_atomic(Wave *w, const Inst *in);

#endif
