/* INTERLEAVE: races in global memory between all waves of a launch, also those that did not run side by side here.
 *
 * For each byte we keep its last write and its last read: which wave, at which time of its group, by which instruction.
 * Two accesses are ordered if they are of one wave; if a barrier of their group lies between; or if the first one's wave
 * released it and published that by an atomic whose result a wave of the other group has seen before it acquired. Plain
 * accesses that are not ordered are a race if one of them writes, and so are a plain one and an atomic.
 *
 * A release is what LLVM's memory model makes of one on the target (decode/ordering.py): until it, a store may not have
 * left the wave, and on several dies not their L2. Where atomic stores are not marked as such, a store that only atomics
 * and coherent loads meet is taken for one.
 */
#include "access.h"

#include <stdlib.h>

enum { PAGE = 1 << 12, BY_ATOMIC = 1u << 31, SEVERAL_WAVES = 1u << 31, SEVERAL_GROUPS = ~0u };

typedef struct {
  u32 wave; /* from 1 on, in the launch; of readers also SEVERAL_WAVES | group, SEVERAL_GROUPS */
  u32 time; /* of its group */
  u32 what; /* the instruction, lane << 24, BY_ATOMIC */
} Touch;

typedef struct Shadow { Touch write, read; } Shadow;

/* What atomics at an address have published: this wave's accesses up to a time, its group's up to another. */
typedef struct { u32 wave, time, barrier; } Published;
typedef struct Sync { u64 address; Published *list; u32 count, room; } Sync;

static void *made_room(Wave *w, void *made) {
  if (!made) fail(w, FAULT_MEMORY, SPACE_GLOBAL, 0, 0, 0, 1);
  return made;
}

Shadow **pages_of(Wave *w, const Span *span) {
  Shared *shared = w->group->shared;
  if (!shared->waves) return 0;
  Shadow ***found = &shared->pages[span - w->launch->spans];
  if (!*found) *found = made_room(w, calloc(span->size / PAGE + 1, sizeof **found));
  return *found;
}

static Shadow *shadow_at(Wave *w, Shadow **pages, u64 at) {
  Shadow **page = &pages[at / PAGE];
  if (!*page) *page = made_room(w, calloc(PAGE, sizeof **page));
  return *page + at % PAGE;
}

/* --- what is ordered --- */

static u32 number_of(const Wave *w) { return w->group->index * w->group->waves + w->number; }

/* Whether what a wave (from 0 on) did at a time comes before what this group does now. */
static int ordered(const Wave *w, u32 wave, u32 time) {
  const Group *g = w->group;
  if (wave == number_of(w)) return 1;
  if (wave / g->waves == g->index) return time <= g->barrier;
  return g->known && (g->known[wave] >= time || g->known[g->shared->waves + wave / g->waves] >= time);
}

static int reads_ordered(const Wave *w, const Touch *read) {
  const Group *g = w->group;
  if (read->wave == SEVERAL_GROUPS) { /* it has acquired something of every other group */
    if (!g->known) return 0;
    for (u64 i = 0; i < g->shared->groups; i++)
      if (i != g->index && !g->known[g->shared->waves + i]) return 0;
    return 1;
  }
  if (!(read->wave & SEVERAL_WAVES)) return ordered(w, read->wave - 1, read->time);
  const u32 group = read->wave & ~SEVERAL_WAVES;
  if (group == g->index) return read->time <= g->barrier;
  return g->known && g->known[g->shared->waves + group] >= read->time;
}

static u32 *times_of(Wave *w, u32 **of) {
  const Shared *shared = w->group->shared;
  if (!*of) *of = made_room(w, calloc(shared->waves + shared->groups, sizeof **of));
  return *of;
}

static void later(u32 *time, u32 other) { if (*time < other) *time = other; }

void mem_release(Wave *w, const Inst *in) {
  (void)in;
  if (!(w->launch->modes & (INTERLEAVE | STALE))) return;
  if (w->launch->dies) write_back(w->launch, w->group->shared, die_of(w));
  w->released = w->group->time++, w->released_barrier = w->group->barrier;
}

void mem_acquire(Wave *w, const Inst *in) {
  (void)in;
  if (!(w->launch->modes & (INTERLEAVE | STALE))) return;
  Group *g = w->group;
  if (w->launch->dies) forget_lines(w->launch, g->shared, die_of(w));
  if (!g->seen) return;
  u32 *known = times_of(w, &g->known);
  for (u64 i = 0; i < g->shared->waves + g->shared->groups; i++) later(&known[i], g->seen[i]);
}

/* --- atomics that publish --- */

static Sync *sync_at(Wave *w, u64 address, int make) {
  Shared *shared = w->group->shared;
  if (make && 2 * shared->sync_used >= shared->sync_slots) {
    Sync *old = shared->syncs;
    const u64 count = shared->sync_slots;
    shared->sync_slots = count ? 2 * count : 64;
    shared->syncs = made_room(w, calloc(shared->sync_slots, sizeof *old));
    for (u64 i = 0; i < count; i++) {
      if (!old[i].address) continue;
      u64 n = old[i].address * 0x9e3779b97f4a7c15 >> 20;
      while (shared->syncs[n % shared->sync_slots].address) n++;
      shared->syncs[n % shared->sync_slots] = old[i];
    }
    free(old);
  }
  if (!shared->sync_slots) return 0;
  for (u64 n = address * 0x9e3779b97f4a7c15 >> 20;; n++) {
    Sync *found = &shared->syncs[n % shared->sync_slots];
    if (found->address == address) return found;
    if (found->address) continue;
    if (!make) return 0;
    shared->sync_used++, found->address = address;
    return found;
  }
}

static void publish_one(Wave *w, Sync *sync, Published what) {
  for (u32 i = sync->count; i-- > 0;)
    if (sync->list[i].wave == what.wave) {
      later(&sync->list[i].time, what.time), later(&sync->list[i].barrier, what.barrier);
      return;
    }
  if (sync->count == sync->room) {
    sync->room = sync->room ? 2 * sync->room : 4;
    sync->list = made_room(w, realloc(sync->list, sync->room * sizeof *sync->list));
  }
  sync->list[sync->count++] = what;
}

static void publish(Wave *w, u64 address) {
  const Group *g = w->group;
  /* Waves wait for their stores before a barrier: where that is a release, what came before it needs no other. */
  const u32 barrier = w->launch->modes & WRITES_BACK ? w->released_barrier : g->barrier;
  if (!w->released && !barrier && !g->known) return;
  Sync *sync = sync_at(w, address, 1);
  publish_one(w, sync, (Published){number_of(w), w->released, barrier});
  for (u64 i = 0; g->known && i < g->shared->waves; i++) /* and what it knows of others */
    if (g->known[i]) publish_one(w, sync, (Published){(u32)i, g->known[i], g->known[g->shared->waves + i / g->waves]});
}

static void see(Wave *w, u64 address) {
  Group *g = w->group;
  const Sync *sync = sync_at(w, address, 0);
  if (!sync || !sync->count) return;
  u32 *seen = times_of(w, &g->seen);
  for (u32 i = 0; i < sync->count; i++) {
    later(&seen[sync->list[i].wave], sync->list[i].time);
    later(&seen[g->shared->waves + sync->list[i].wave / g->waves], sync->list[i].barrier);
  }
}

/* A store that may be an atomic one: what its group did before its last release or barrier comes with it. */
static void see_store(Wave *w, const Piece *p, u64 at, u32 bytes) {
  Group *g = w->group;
  const Touch *write = &shadow_at(w, p->pages, at)->write;
  const u32 group = write->wave ? (write->wave - 1) / g->waves : g->index;
  if (group == g->index) return;
  later(&times_of(w, &g->seen)[g->shared->waves + group], write->time - 1);
  for (u32 i = 0; i < bytes; i++) shadow_at(w, p->pages, at + i)->write.what |= BY_ATOMIC;
}

/* --- accesses --- */

static void race(Wave *w, const Access *a, int lane, u64 address, const Touch *other, int other_writes) {
  Fault *f = &w->launch->fault;
  const u32 waves = w->group->waves;
  const u32 group = other->wave == SEVERAL_GROUPS ? ~0u : other->wave & SEVERAL_WAVES ? other->wave & ~SEVERAL_WAVES
                                                                                      : (other->wave - 1) / waves;
  f->other = other->wave & SEVERAL_WAVES ? ~0u : (other->wave - 1) % waves;
  f->other_group = group, f->other_write = (u32)other_writes, f->other_inst = (other->what & 0xffffff) + 1;
  fail(w, FAULT_RACE, SPACE_GLOBAL, lane, address, a->bytes, a->how != READ);
}

static void note_read(const Wave *w, Touch *read, Touch me) {
  const Group *g = w->group;
  if (read->wave && read->wave != me.wave) {
    const u32 group = read->wave == SEVERAL_GROUPS ? ~0u : read->wave & SEVERAL_WAVES ? read->wave & ~SEVERAL_WAVES
                                                                                      : (read->wave - 1) / g->waves;
    if (group != g->index) me.wave = SEVERAL_GROUPS;
    else if (read->time > g->barrier) me.wave = SEVERAL_WAVES | g->index;
  }
  *read = me;
}

/* How the current instruction meets a byte; `value`: what a plain store puts there. */
static void meet(Wave *w, const Inst *in, const Access *a, Shadow *s, int lane, u64 address, u8 *data, u8 value) {
  const u32 marked = w->launch->modes & STORES_MARKED, number = number_of(w);
  const int coherent = a->how == ATOMIC || in->flags & COHERENT, same = s->write.wave == number + 1;
  const int by_atomic = s->write.what >> 31;
  /* Atomics may meet, and a coherent load and any store. Stores that may be atomic: if one is, or they store the same. */
  const int may_meet = coherent ? a->how == READ || by_atomic || !marked
                                : a->how == WRITE && !marked && (by_atomic || *data == value);
  Touch me = {number + 1, w->group->time, (w->pc - 1) | (u32)lane << 24 | (coherent ? BY_ATOMIC : 0)};
  if (s->write.wave && !same && !may_meet && !ordered(w, s->write.wave - 1, s->write.time))
    race(w, a, lane, address, &s->write, 1);
  if (a->how == READ) {
    if (!coherent) note_read(w, &s->read, me);
    return;
  }
  if (s->read.wave && s->read.wave != me.wave && !reads_ordered(w, &s->read)) race(w, a, lane, address, &s->read, 0);
  if (a->how == WRITE) {
    const u32 other_lane = s->write.what >> 24 & 63;
    if (same && !coherent && !by_atomic && other_lane != (u32)lane && s->write.time > w->group->barrier && *data != value)
      race(w, a, lane, address, &s->write, 1);
    *data = value;
  }
  s->write = me, s->read.wave = 0;
}

void follow(Wave *w, const Inst *in, const Access *a, const Piece *p) {
  const int coherent = a->how == ATOMIC || in->flags & COHERENT, marked = w->launch->modes & STORES_MARKED;
  EACH_OF(p->mask) {
    const int l = LANE_OF;
    u8 bytes[16] = {0};
    if (a->how == WRITE) stored_bytes(w, in, (u32)l, bytes);
    if (coherent && a->how != WRITE) {
      see(w, a->address[l]);
      if (!marked) see_store(w, p, p->at[l], a->bytes);
    }
    for (u32 i = 0; i < a->bytes; i++) {
      const u64 at = p->at[l] + i;
      meet(w, in, a, shadow_at(w, p->pages, at), l, a->address[l] + i, p->data + at, bytes[i]);
    }
    if (coherent && a->how != READ) publish(w, a->address[l]);
  }
}

void follow_scalar(Wave *w, const Span *span, u64 at, u64 bytes) {
  Shadow **pages = pages_of(w, span);
  const Inst plain = {.flags = 0};
  Access a = {.space = SPACE_GLOBAL, .bytes = (u32)bytes, .how = READ};
  u8 none = 0;
  for (u64 i = 0; pages && i < bytes; i++)
    meet(w, &plain, &a, shadow_at(w, pages, at + i), 0, span->base + at + i, &none, 0);
}

void forget_group(Group *g) {
  free(g->seen), free(g->known);
  g->seen = g->known = 0, g->time = 1, g->barrier = 0;
}

void free_shadows(Launch *launch, Shared *shared) {
  for (u64 i = 0; shared->pages && i < launch->span_count; i++) {
    for (u64 k = 0; shared->pages[i] && k <= launch->spans[i].size / PAGE; k++) free(shared->pages[i][k]);
    free(shared->pages[i]);
  }
  for (u64 i = 0; i < shared->sync_slots; i++) free(shared->syncs[i].list);
  free(shared->pages), free(shared->syncs);
}
