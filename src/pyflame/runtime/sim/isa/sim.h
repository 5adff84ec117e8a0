/* The state of a simulated GPU and how instructions read and write it.
 *
 * An instruction is decoded once (decode.py) into an Inst; its handler runs over all lanes of a wave. Registers lie as
 * rows of PF_LANES lanes, so a handler is a loop of fixed length that the C compiler turns into vector code; lanes that
 * are off compute too, and their results are dropped when the row is written.
 */
#ifndef PF_SIM_H
#define PF_SIM_H

#define _GNU_SOURCE /* roundeven */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#ifndef PF_LANES
#define PF_LANES 64
#endif
#define PF_ALL (PF_LANES == 64 ? ~(u64)0 : (u64)0xffffffff)
#define EACH_LANE for (int l = 0; l < PF_LANES; l++)

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

/* Scalar registers by number; what has a name of its own lies behind the ordinary ones. */
enum { VCC = 106, TTMP = 108, M0 = 124, NULL_REGISTER = 125, EXEC = 126, SGPRS = 128 };

enum { AGPR_ROW = 256 }; /* accumulation registers follow the ordinary ones in a wave's rows */

/* --- a decoded instruction (the layout is known to decode.py) --- */

enum { NO_OPERAND, VGPR, SGPR, CONSTANT };
enum { NEG = 1, ABS = 2, SEXT = 4, HIGH = 8, HIGH_OF_HIGH = 16, NEG_HIGH = 32 };

typedef struct {
  u8 kind;
  u8 mods;    /* NEG … NEG_HIGH. HIGH: the upper half is read (op_sel, v0.h); HIGH_OF_HIGH: by the upper result */
  u8 select;  /* SDWA: 0 the whole, 1..4 a byte, 5 and 6 a word */
  u8 special; /* 1: not a plain register or constant, needs the slow path (mods, select) */
  u32 index;  /* first register */
  u64 value;  /* of a constant, as wide as the operand */
} Operand;

enum {
  CLAMP = 1, PAIRED = 2, DPP = 4, SDWA = 8, BOUND_CTRL = 16, RETURNS = 32, TO_LDS = 64, D16_HIGH = 128,
  COHERENT = 256 /* a load or a store that goes around caches: an atomic one, or volatile */
};

struct Wave;
struct Inst;
typedef void (*Handler)(struct Wave *, const struct Inst *);

typedef struct Inst {
  Handler run;
  u32 address; /* in the code object */
  u32 target;  /* the instruction a branch goes to, by number */
  Operand dst[2];
  Operand src[5];
  i32 offset;    /* of memory instructions; the immediate of others */
  u32 flags;     /* CLAMP … */
  u16 dpp;       /* the control of data-parallel primitives, or the eight lanes of dpp8 */
  u8 row_mask, bank_mask;
  u8 omod;       /* 1: times 2, 2: times 4, 3: half */
  u8 dst_select, dst_unused; /* SDWA; unused: 0 zeros, 1 sign, 2 keep */
  u8 space, bytes, count, extra; /* for memory and matrix instructions: what their decoder and handler agree on */
} Inst;

/* --- memory, launches, faults (known to machine.py and memory.py) --- */

typedef struct {
  u64 base, size;
  u8 *data, *written;
} Span;

enum {
  FAULT_NONE, FAULT_ADDRESS, FAULT_UNINITIALISED, FAULT_RACE, FAULT_BARRIER, FAULT_LIMIT, FAULT_INSTRUCTION,
  FAULT_ALIGNMENT, FAULT_DIVERGENT,
  FAULT_MEMORY /* the host has none left: not the kernel's doing */
};
enum { SPACE_GLOBAL, SPACE_LDS, SPACE_SCRATCH, SPACE_FLAT, SPACE_CODE };
enum { CHECK_UNINITIALISED = 1, CHECK_RACES = 2, COUNT = 4 };
/* Modes of a launch, and of the target: atomic stores are told from plain ones; a release writes back an L2. */
enum { INTERLEAVE = 1, STALE = 2, STORES_MARKED = 4, WRITES_BACK = 8 };

typedef struct {
  u32 kind, space, lane, wave;
  u32 other; /* the second wave of a race (~0: several), the wave that has ended, the barrier that lanes did not reach */
  u32 inst, write, bytes, other_write;
  u32 other_inst; /* of a race in global memory that a mode looks for: the other instruction, from 1 */
  u32 group[3], other_group;
  u64 address;
} Fault;

typedef struct {
  u64 steps;      /* per instruction: how often a wave ran it */
  u64 lanes;      /* lanes that were on */
  u64 lines;      /* cache lines touched, of memory instructions */
  u64 least;      /* … that their lanes' bytes would fill */
  u64 passes;     /* of the LDS, without conflicts */
  u64 conflicts;  /* further LDS passes */
  u64 taken;      /* branches: taken */
  u64 divergent;  /* branches on EXEC or VCC that a part of the lanes wanted */
} Counts;

typedef struct {
  const Inst *insts;
  u32 inst_count;
  const i32 *by_address; /* (address - text_start) / 4 -> instruction, -1: none begins there */
  u64 text_start, text_bytes;
  u64 load_base; /* where the code object lies in device memory */
} Program;

typedef struct {
  const Program *program;
  const Span *spans;
  u64 span_count;
  u32 entry;
  u32 grid[3], block[3];
  u32 vgprs, used_vgprs, used_agprs; /* rows of a wave; how many of them the kernel uses, from 0 and from AGPR_ROW */
  u32 lds_bytes, scratch_bytes;
  u32 sgprs[32];       /* user SGPRs that are the same for all groups */
  u32 user_sgprs;
  u32 group_ids;       /* bit d: the number of the group in dimension d follows; bit 3: the offset of the wave's scratch */
  u32 mode;            /* of floating point: rounding (0..3), denormals (4..7); bit 8 DX10 clamp, bit 9 IEEE */
  u32 checks;
  u32 generation;      /* 9, 11 or 12 */
  u64 seed, step_limit;
  Counts *counts;      /* per instruction, with COUNT */
  u64 steps;           /* result */
  Fault fault;         /* result */
  const u8 *stops;     /* a byte per instruction, or null: stop before one of those … */
  u32 stop_wave, stop_group[3], stop_after; /* … in this wave, when it has come to them so often before … */
  u32 stop_scc;        /* … (result) … */
  void *stop_state;    /* … and copy its registers here: SGPRs, then rows of VGPRs */
  const void *start_state; /* registers to begin with, instead of what the loader puts there; or null */
  u32 modes, dies;     /* INTERLEAVE …; with STALE: L2 caches that do not see each other's writes, 0: one for all */
  void *scalar_cache;  /* SCALAR_LINES lines that outlive the launch (caches.c), or null */
} Launch;

/* Apertures of flat addresses (decode.py). */
#define SHARED_BASE ((u64)1 << 48)
#define PRIVATE_BASE ((u64)2 << 48)

struct Shared; /* what all groups of a launch share (access.h) */

typedef struct Group {
  Launch *launch;
  struct Shared *shared;
  u32 id[3], index;
  u32 epoch; /* barriers passed */
  u32 waves;
  u8 *lds, *lds_written;
  u8 *writers, *readers; /* who touched each byte of the LDS in the epoch that follows (access.c) */
  u32 touched_epoch;
  u32 next, block, phase; /* numbers of threads: the next free one, the last before this group, … before this epoch */
  u32 time, barrier;     /* INTERLEAVE: counts barriers and releases of its waves; what it was at the last barrier */
  u32 *seen, *known;     /* of other groups' waves, then groups: up to which time its atomics have seen, and it acquired */
  Fault pending; /* an uninitialised read that turns out as a race if another wave writes before the next barrier */
} Group;

typedef struct Wave {
  u32 s[SGPRS];
  u32 mask[PF_LANES]; /* EXEC, a word of ones or zeros per lane */
  u64 writes;         /* lanes that the current instruction may write: EXEC, less what DPP disables */
  u32 scc, mode, number;
  u32 pc;             /* the next instruction, by number */
  u32 state;
  u32 flush32;        /* denormals of float32 are flushed: 1 those of sources, 2 of results */
  u32 flush16;        /* … of float16 and float64 */
  int rounding16;     /* how results of float16 and float64 are rounded (fesetround); -1: as those of float32 are */
  Group *group;
  Launch *launch;
  u32 *v;             /* launch->vgprs rows */
  u8 *scratch, *scratch_written; /* launch->scratch_bytes per lane */
  const Span *last;   /* where the last access fell */
  u64 lanes;          /* threads of the block */
  u64 missed;         /* of them, those that were off at a barrier: not a fault if they have returned */
  u32 missed_at;      /* that barrier */
  u32 signalled;      /* GFX12: the wave has arrived at a barrier for which it does not wait yet */
  u64 exec_now, exec_before; /* EXEC, and what it was before it changed last */
  u32 released, released_barrier; /* INTERLEAVE: what an atomic publishes: the group's time, and its last barrier's */
  jmp_buf *out;
} Wave;

enum { RUNNING, AT_BARRIER, ENDED };

/* --- helpers of handlers --- */

void fail(Wave *w, u32 kind, u32 space, int lane, u64 address, u32 bytes, int write) __attribute__((noreturn));
/* The same, but the waves first run to the next barrier, unless another fault comes. */
void fail_at_barrier(Wave *w, u32 kind, u32 space, int lane, u64 address, u32 bytes, int write);
void exec_changed(Wave *w);
void check_missed(Wave *w, u64 active);
void mode_changed(Wave *w);

static inline u32 *row(Wave *w, u32 index) { return w->v + (u64)index * PF_LANES; }
static inline u64 exec_of(const Wave *w) { return ((u64)w->s[EXEC + 1] << 32 | w->s[EXEC]) & PF_ALL; }

static inline u32 read_s32(const Wave *w, const Operand *o) {
  return o->kind == SGPR ? w->s[o->index] : (u32)o->value;
}
static inline u64 read_s64(const Wave *w, const Operand *o) {
  return o->kind == SGPR ? (u64)w->s[o->index + 1] << 32 | w->s[o->index] : o->value;
}
static inline void write_s32(Wave *w, const Operand *o, u32 value) {
  if (o->kind != SGPR || o->index == NULL_REGISTER) return;
  w->s[o->index] = value;
  if (o->index >= EXEC) exec_changed(w);
}
static inline void write_s64(Wave *w, const Operand *o, u64 value) {
  if (o->kind != SGPR || o->index == NULL_REGISTER) return;
  w->s[o->index] = (u32)value;
  w->s[o->index + 1] = (u32)(value >> 32);
  if (o->index >= EXEC) exec_changed(w);
}
/* A bit per lane: two scalar registers with 64 lanes, one with 32. */
static inline u64 read_mask(const Wave *w, const Operand *o) {
  return PF_LANES == 64 ? read_s64(w, o) : read_s32(w, o);
}
static inline void write_mask(Wave *w, const Operand *o, u64 value) {
  if (PF_LANES == 64) write_s64(w, o, value); else write_s32(w, o, (u32)value);
}

/* Sources as arrays of lanes: a register's own row where that will do, else filled into `space`. is_float: 1, or 2 for
 * the sign modifiers alone (denormals stay). */
const u32 *slow32(Wave *w, const Inst *in, const Operand *o, u32 *space, int is_float);
static inline const u32 *get32(Wave *w, const Inst *in, const Operand *o, u32 *space, int is_float) {
  return !o->special && o->kind == VGPR ? row(w, o->index) : slow32(w, in, o, space, is_float);
}
const u64 *get64(Wave *w, const Inst *in, const Operand *o, u64 *space, int is_float);
const u16 *get16(Wave *w, const Inst *in, const Operand *o, u16 *space, int is_float);
/* Sources of packed instructions, for the lower or the upper result: a half of a register, a register of a pair. */
const u16 *get_half(Wave *w, const Inst *in, const Operand *o, u16 *space, int is_float, int upper);
const u32 *get_pair(Wave *w, const Inst *in, const Operand *o, u32 *space, int is_float, int upper);
/* The lanes that an instruction may write: EXEC, less what DPP disables (known once the first source is fetched). */
static inline u64 lanes_on(const Wave *w, const Inst *in) { return in->flags & DPP ? w->writes : exec_of(w); }

/* Results under EXEC; clamp and output modifiers of floats have been applied. */
void put32_slow(Wave *w, const Inst *in, const Operand *o, const u32 *out);
static inline void put32(Wave *w, const Inst *in, const Operand *o, const u32 *out) {
  if (__builtin_expect(in->flags & (DPP | SDWA), 0)) { put32_slow(w, in, o, out); return; }
  u32 *to = row(w, o->index);
  const u32 *mask = w->mask;
  EACH_LANE to[l] = mask[l] ? out[l] : to[l];
}
void put64(Wave *w, const Inst *in, const Operand *o, const u64 *out);
void put16(Wave *w, const Inst *in, const Operand *o, const u16 *out);
u64 pack_bits(const u8 *bits); /* PF_LANES bytes of 0 or 1 */

/* Tables that the other files bring: name, handler, types of the results, types of the sources. */
typedef struct { const char *name; Handler run; const char *results, *sources; } Entry;
extern const Entry SCALAR_TABLE[], SCALAR_FLOAT_TABLE[], INTEGER_TABLE[], FLOAT_TABLE[], COMPARE_TABLE[],
    CONVERT_TABLE[], SCALE_TABLE[], PACKED_TABLE[], LANES_TABLE[], MEMORY_TABLE[], MATRIX_TABLE[];
extern const int SCALAR_COUNT, SCALAR_FLOAT_COUNT, INTEGER_COUNT, FLOAT_COUNT, COMPARE_COUNT, CONVERT_COUNT,
    SCALE_COUNT, PACKED_COUNT, LANES_COUNT, MEMORY_COUNT, MATRIX_COUNT;

#endif
