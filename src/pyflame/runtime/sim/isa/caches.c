/* STALE: caches that do not notice what others write.
 *
 * The scalar cache keeps lines of 64 bytes until it is invalidated, by s_dcache_inv or when a kernel begins. On a GPU of
 * several dies each has an L2 of its own, with lines of 128 bytes: a group reads what its die has read before, and its
 * stores stay there until they are released (LLVM's AMDGPU usage guide, memory model of gfx942). Here a line never goes
 * by itself, which is the worst that hardware may do. Atomics, and what is COHERENT, go to memory.
 */
#include "access.h"

#include <stdlib.h>

enum { LINE = 128, SCALAR_LINE = 64, SCALAR_LINES = 4096 };

/* --- the L2 of each die --- */

typedef struct Copy { u8 *data, *valid, *dirty; } Copy; /* of a span: its bytes, a flag per line, a flag per byte */

static Copy *copy_of(Wave *w, const Span *span) {
  Shared *shared = w->group->shared;
  const Launch *launch = w->launch;
  if (!shared->copies) shared->copies = calloc(launch->dies * (launch->span_count + 1), sizeof *shared->copies);
  if (!shared->copies) fail(w, FAULT_MEMORY, SPACE_GLOBAL, 0, 0, 0, 1);
  Copy *found = &shared->copies[die_of(w) * launch->span_count + (u64)(span - launch->spans)];
  if (!found->data) found->data = malloc(span->size);
  if (!found->valid) found->valid = calloc(span->size / LINE + 1, 1);
  if (!found->dirty) found->dirty = calloc(span->size, 1);
  if (!found->data || !found->valid || !found->dirty) fail(w, FAULT_MEMORY, SPACE_GLOBAL, 0, 0, 0, 1);
  return found;
}

static u64 line_bytes(const Span *span, u64 line) {
  return span->size - line * LINE < LINE ? span->size - line * LINE : LINE;
}

/* What the die has stored goes to memory. */
static void clean_line(const Span *span, Copy *c, u64 line) {
  const u64 first = line * LINE;
  for (u64 i = first; i < first + line_bytes(span, line); i++)
    if (c->dirty[i]) span->data[i] = c->data[i], c->dirty[i] = 0;
}

static Copy *each_copy(Launch *launch, Shared *shared, u32 die, u64 span) {
  Copy *c = shared->copies ? &shared->copies[die * launch->span_count + span] : 0;
  return c && c->dirty ? c : 0;
}

void write_back(Launch *launch, Shared *shared, u32 die) {
  for (u64 s = 0; s < launch->span_count; s++) {
    Copy *c = each_copy(launch, shared, die, s);
    for (u64 line = 0; c && line * LINE < launch->spans[s].size; line++)
      if (c->valid[line]) clean_line(&launch->spans[s], c, line);
  }
}

/* Lines are read anew, but for bytes that the die has stored and not released. */
void forget_lines(Launch *launch, Shared *shared, u32 die) {
  for (u64 s = 0; s < launch->span_count; s++) {
    const Span *span = &launch->spans[s];
    Copy *c = each_copy(launch, shared, die, s);
    for (u64 line = 0; c && line * LINE < span->size; line++) {
      if (!c->valid[line]) continue;
      const u64 first = line * LINE, bytes = line_bytes(span, line);
      c->valid[line] = memchr(c->dirty + first, 1, bytes) != 0;
      for (u64 i = first; c->valid[line] && i < first + bytes; i++)
        if (!c->dirty[i]) c->data[i] = span->data[i];
    }
  }
}

static void scalar_note(Wave *w, u64 address);

void reach_cached(Wave *w, const Inst *in, const Access *a, const Span *span, Piece *p) {
  const int around = a->how == ATOMIC || in->flags & COHERENT;
  if (!w->launch->dies) return;
  Copy *c = copy_of(w, span);
  EACH_OF(p->mask) {
    const u64 at = p->at[LANE_OF];
    for (u64 line = at / LINE; line <= (at + a->bytes - 1) / LINE; line++) {
      if (around && c->valid[line]) clean_line(span, c, line), c->valid[line] = 0;
      else if (!around && !c->valid[line])
        memcpy(c->data + line * LINE, span->data + line * LINE, line_bytes(span, line)), c->valid[line] = 1;
    }
  }
  if (!around) p->data = c->data;
}

void leave_cached(Wave *w, const Inst *in, const Access *a, const Span *span, const Piece *p) {
  if (a->how == READ) return;
  Copy *c = w->launch->dies && a->how == WRITE && !(in->flags & COHERENT) ? copy_of(w, span) : 0;
  EACH_OF(p->mask) {
    if (c) memset(c->dirty + p->at[LANE_OF], 1, a->bytes);
    scalar_note(w, a->address[LANE_OF]), scalar_note(w, a->address[LANE_OF] + a->bytes - 1);
  }
}

void free_caches(Launch *launch, Shared *shared) {
  for (u64 i = 0; shared->copies && i < launch->dies * launch->span_count; i++)
    free(shared->copies[i].data), free(shared->copies[i].valid), free(shared->copies[i].dirty);
  free(shared->copies);
}

/* --- the scalar cache, which outlives the launch (machine.py knows the layout) --- */

typedef struct { u64 tag; u8 data[SCALAR_LINE], present[SCALAR_LINE], written; u8 spare[7]; } ScalarLine; /* tag: line + 1 */

static ScalarLine *scalar_line(const Launch *launch, u64 address) {
  return (ScalarLine *)launch->scalar_cache + address / SCALAR_LINE % SCALAR_LINES;
}

static void scalar_note(Wave *w, u64 address) {
  if (!w->launch->scalar_cache) return;
  ScalarLine *line = scalar_line(w->launch, address);
  if (line->tag == address / SCALAR_LINE + 1) line->written = 1;
}

/* Memory as the die's L2 shows it. */
static u8 through_l2(Wave *w, const Span *span, u64 at) {
  Shared *shared = w->group->shared;
  const Launch *launch = w->launch;
  if (!launch->dies || !shared->copies) return span->data[at];
  const Copy *c = &shared->copies[die_of(w) * launch->span_count + (u64)(span - launch->spans)];
  return c->valid && c->valid[at / LINE] ? c->data[at] : span->data[at];
}

void scalar_bytes(Wave *w, const Span *span, u64 at, u64 bytes, u64 needed, u8 *out) {
  const Launch *launch = w->launch;
  if (launch->modes & INTERLEAVE) follow_scalar(w, span, at, bytes < needed ? bytes : needed);
  if (!launch->scalar_cache) { memcpy(out, span->data + at, bytes); return; }
  for (u64 i = 0; i < bytes; i++) {
    const u64 address = span->base + at + i;
    ScalarLine *line = scalar_line(launch, address);
    if (line->tag != address / SCALAR_LINE + 1) {
      memset(line, 0, sizeof *line);
      line->tag = address / SCALAR_LINE + 1;
      for (u64 k = 0; k < SCALAR_LINE; k++) { /* the part of it that is allocated */
        const u64 there = address / SCALAR_LINE * SCALAR_LINE + k - span->base;
        if (there < span->size) line->data[k] = through_l2(w, span, there), line->present[k] = 1;
      }
    }
    const u64 k = address % SCALAR_LINE;
    out[i] = line->present[k] ? line->data[k] : through_l2(w, span, at + i);
  }
}

void scalar_forget(Wave *w, const Inst *in) {
  (void)in;
  if (w->launch->scalar_cache) memset(w->launch->scalar_cache, 0, SCALAR_LINES * sizeof(ScalarLine));
}

/* What a kernel has written, those behind it in a graph see. */
void scalar_finish(Launch *launch) {
  ScalarLine *lines = launch->scalar_cache;
  for (u64 i = 0; lines && i < SCALAR_LINES; i++)
    if (lines[i].written) memset(&lines[i], 0, sizeof *lines);
}
