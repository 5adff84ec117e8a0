/* Runs a launch: groups one after the other, the waves of a group until each is at a barrier or at its end; or several
 * groups at once, whose waves take turns (INTERLEAVE). */
#include "access.h"

#include <stdlib.h>

static Fault made(const Wave *w, u32 kind, u32 space, int lane, u64 address, u32 bytes, int write) {
  Fault f = w->launch->fault;
  f.kind = kind, f.space = space, f.lane = (u32)lane, f.address = address, f.bytes = bytes, f.write = (u32)write;
  f.wave = w->number;
  f.inst = w->pc - 1;
  memcpy(f.group, w->group->id, sizeof f.group);
  return f;
}

void fail(Wave *w, u32 kind, u32 space, int lane, u64 address, u32 bytes, int write) {
  const int later = w->group->pending.kind && kind != FAULT_RACE && kind != FAULT_NONE;
  w->launch->fault = later ? w->group->pending : made(w, kind, space, lane, address, bytes, write);
  longjmp(*w->out, 1);
}

void fail_at_barrier(Wave *w, u32 kind, u32 space, int lane, u64 address, u32 bytes, int write) {
  if (!w->group->pending.kind) w->group->pending = made(w, kind, space, lane, address, bytes, write);
}

void exec_changed(Wave *w) {
  const u64 exec = exec_of(w);
  w->exec_before = w->exec_now, w->exec_now = exec;
  EACH_LANE w->mask[l] = (u32)-(i32)(exec >> l & 1);
}

void mode_changed(Wave *w) {
  static const int rounding[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  fesetround(rounding[w->mode & 3]);
  w->rounding16 = (w->mode >> 2 & 3) == (w->mode & 3) ? -1 : rounding[w->mode >> 2 & 3];
  w->flush32 = ~w->mode >> 4 & 3;
  w->flush16 = ~w->mode >> 6 & 3;
}

/* --- scalar instructions --- */

typedef i32 K16_T;
#define U32_T u32
#define I32_T i32
#define U64_T u64
#define I64_T i64
#define NONE_T u32
#define READ_U32(w, o) read_s32(w, o)
#define READ_I32(w, o) (i32)read_s32(w, o)
#define READ_U64(w, o) read_s64(w, o)
#define READ_I64(w, o) (i64)read_s64(w, o)
#define READ_NONE(w, o) 0
#define READ_K16(w, o) (i32)(i16)read_s32(w, o)
#define WRITE_U32 write_s32
#define WRITE_I32 write_s32
#define WRITE_U64 write_s64
#define WRITE_I64 write_s64
#define WRITE_NONE(w, o, d) (void)(d)

#define S1(NAME, D, A, ...)                                                  \
  static void NAME(Wave *w, const Inst *in) {                                \
    const A##_T a = READ_##A(w, &in->src[0]);                                \
    const D##_T old = READ_##D(w, &in->dst[0]);                              \
    D##_T d = 0;                                                             \
    u32 scc = w->scc;                                                        \
    (void)old;                                                               \
    __VA_ARGS__;                                                             \
    w->scc = scc;                                                            \
    WRITE_##D(w, &in->dst[0], d);                                            \
  }
#define S2(NAME, D, A, B, ...)                                               \
  static void NAME(Wave *w, const Inst *in) {                                \
    const A##_T a = READ_##A(w, &in->src[0]);                                \
    const B##_T b = READ_##B(w, &in->src[1]);                                \
    D##_T d = 0;                                                             \
    u32 scc = w->scc;                                                        \
    __VA_ARGS__;                                                             \
    w->scc = scc;                                                            \
    WRITE_##D(w, &in->dst[0], d);                                            \
  }
#include "scalar.def"
#undef S1
#undef S2

/* s_<op>_saveexec: the old EXEC is kept, the new one comes from both. */
static const Operand EXEC_OPERAND = {SGPR, 0, 0, 0, EXEC, 0};
#define SAVEEXEC(NAME, EXPRESSION)                                           \
  static void s_##NAME##_saveexec(Wave *w, const Inst *in) {                 \
    const u64 a = read_mask(w, &in->src[0]), e = exec_of(w), d = (EXPRESSION) & PF_ALL; \
    write_mask(w, &in->dst[0], e);                                           \
    write_mask(w, &EXEC_OPERAND, d);                                         \
    w->scc = d != 0;                                                         \
  }
/* …_wrexec: EXEC and the destination both receive the new mask. */
#define WREXEC(NAME, EXPRESSION)                                             \
  static void s_##NAME##_wrexec(Wave *w, const Inst *in) {                   \
    const u64 a = read_mask(w, &in->src[0]), e = exec_of(w), d = (EXPRESSION) & PF_ALL; \
    write_mask(w, &in->dst[0], d);                                           \
    write_mask(w, &EXEC_OPERAND, d);                                         \
    w->scc = d != 0;                                                         \
  }
SAVEEXEC(and, a & e)
SAVEEXEC(or, a | e)
SAVEEXEC(xor, a ^ e)
SAVEEXEC(andn2, a & ~e)
SAVEEXEC(orn2, a | ~e)
SAVEEXEC(nand, ~(a & e))
SAVEEXEC(nor, ~(a | e))
SAVEEXEC(xnor, ~(a ^ e))
SAVEEXEC(andn1, ~a & e)
SAVEEXEC(orn1, ~a | e)
WREXEC(andn1, ~a & e)
WREXEC(andn2, a & ~e)

/* --- control flow --- */

static void branch(Wave *w, const Inst *in, int taken) {
  if (w->launch->checks & COUNT) w->launch->counts[w->pc - 1].taken += (u64)taken;
  if (taken) w->pc = in->target;
}
/* A branch that `wanted` of the lanes in `asked` decide: divergent when they do not agree. */
static void branch_of(Wave *w, const Inst *in, int taken, u64 wanted, u64 asked) {
  if (w->launch->checks & COUNT) w->launch->counts[w->pc - 1].divergent += (wanted & asked) && (asked & ~wanted);
  branch(w, in, taken);
}
static u64 vcc_of(const Wave *w) { return ((u64)w->s[VCC + 1] << 32 | w->s[VCC]) & PF_ALL; }
static void s_nop(Wave *w, const Inst *in) { (void)w, (void)in; }
static void s_branch(Wave *w, const Inst *in) { branch(w, in, 1); }
static void s_cbranch_scc0(Wave *w, const Inst *in) { branch(w, in, !w->scc); }
static void s_cbranch_scc1(Wave *w, const Inst *in) { branch(w, in, w->scc != 0); }
static void s_cbranch_vccz(Wave *w, const Inst *in) { branch_of(w, in, !vcc_of(w), vcc_of(w), exec_of(w)); }
static void s_cbranch_vccnz(Wave *w, const Inst *in) { branch_of(w, in, vcc_of(w) != 0, vcc_of(w), exec_of(w)); }
static void s_cbranch_execz(Wave *w, const Inst *in) { branch_of(w, in, !exec_of(w), w->exec_now, w->exec_before); }
static void s_cbranch_execnz(Wave *w, const Inst *in) { branch_of(w, in, exec_of(w) != 0, w->exec_now, w->exec_before); }
/* A thread that goes on although it has not reached a barrier which others of its wave have passed. */
void check_missed(Wave *w, u64 active) {
  if (!(w->missed & active)) return;
  w->launch->fault.other = w->missed_at;
  fail(w, FAULT_DIVERGENT, SPACE_CODE, __builtin_ctzll(w->missed & active), 0, 0, 0);
}
static void s_endpgm(Wave *w, const Inst *in) { (void)in, w->state = ENDED; }
static void arrive(Wave *w) {
  const u64 exec = exec_of(w);
  check_missed(w, exec);
  if (w->lanes & ~exec) w->missed |= w->lanes & ~exec, w->missed_at = w->pc - 1;
}
static void s_barrier(Wave *w, const Inst *in) { (void)in, arrive(w), w->state = AT_BARRIER; }
/* The two halves of a barrier (GFX12), of the whole group only: number -1. What a wave does between them is ordered as if
 * it came before the barrier. */
static void s_barrier_signal(Wave *w, const Inst *in) {
  if (in->offset != -1 || w->signalled) fail(w, FAULT_INSTRUCTION, SPACE_CODE, 0, 0, 0, 0);
  arrive(w), w->signalled = 1;
}
static void s_barrier_wait(Wave *w, const Inst *in) {
  if ((i16)in->offset != -1 || !w->signalled) fail(w, FAULT_INSTRUCTION, SPACE_CODE, 0, 0, 0, 0);
  w->signalled = 0, w->state = AT_BARRIER;
}

static u64 next_address(const Wave *w, const Inst *in) {
  const Program *p = w->launch->program;
  return p->load_base + (w->pc < p->inst_count ? p->insts[w->pc].address : in->address + 4);
}
static void go_to(Wave *w, u64 address) {
  const Program *p = w->launch->program;
  const u64 at = address - p->load_base - p->text_start;
  const i32 found = at < p->text_bytes && !(at & 3) ? p->by_address[at / 4] : -1;
  if (found < 0) fail(w, FAULT_ADDRESS, SPACE_CODE, 0, address, 4, 0);
  w->pc = (u32)found;
}
static void s_getpc(Wave *w, const Inst *in) { write_s64(w, &in->dst[0], next_address(w, in)); }
static void s_setpc(Wave *w, const Inst *in) { go_to(w, read_s64(w, &in->src[0])); }
static void s_swappc(Wave *w, const Inst *in) {
  const u64 to = read_s64(w, &in->src[0]);
  write_s64(w, &in->dst[0], next_address(w, in));
  go_to(w, to);
}
static void s_call(Wave *w, const Inst *in) {
  write_s64(w, &in->dst[0], next_address(w, in));
  w->pc = in->target;
}

/* --- the rest --- */

enum { HWREG_MODE = 1 };
static u32 field_mask(const Inst *in) { return (u32)(((u64)1 << in->count) - 1); }
static void s_setreg(Wave *w, const Inst *in) { /* space: the register, bytes: first bit, count: bits */
  if (in->space != HWREG_MODE) fail(w, FAULT_INSTRUCTION, SPACE_CODE, 0, 0, 0, 0);
  const u32 mask = field_mask(in) << in->bytes;
  w->mode = (w->mode & ~mask) | (read_s32(w, &in->src[0]) << in->bytes & mask);
  if (w->mode >> 23 & 1) fail(w, FAULT_INSTRUCTION, SPACE_CODE, 0, 0, 0, 0); /* FP16_OVFL: not simulated */
  mode_changed(w);
}
static void s_getreg(Wave *w, const Inst *in) {
  if (in->space != HWREG_MODE) fail(w, FAULT_INSTRUCTION, SPACE_CODE, 0, 0, 0, 0);
  write_s32(w, &in->dst[0], w->mode >> in->bytes & field_mask(in));
}
static void s_round_mode(Wave *w, const Inst *in) {
  w->mode = (w->mode & ~15u) | ((u32)in->offset & 15);
  mode_changed(w);
}
static void s_denorm_mode(Wave *w, const Inst *in) {
  w->mode = (w->mode & ~0xf0u) | ((u32)in->offset & 15) << 4;
  mode_changed(w);
}
static void s_memtime(Wave *w, const Inst *in) { write_s64(w, &in->dst[0], w->launch->steps); }
static void s_trap(Wave *w, const Inst *in) { fail(w, FAULT_INSTRUCTION, SPACE_CODE, 0, (u64)in->offset, 0, 0); }
static void s_movrels_b32(Wave *w, const Inst *in) {
  write_s32(w, &in->dst[0], w->s[(in->src[0].index + w->s[M0]) & 127]);
}
static void s_movreld_b32(Wave *w, const Inst *in) {
  const Operand to = {SGPR, 0, 0, 0, (in->dst[0].index + w->s[M0]) & 127, 0};
  write_s32(w, &to, read_s32(w, &in->src[0]));
}

#define S1(NAME, D, A, ...) {#NAME, NAME, #D, #A},
#define S2(NAME, D, A, B, ...) {#NAME, NAME, #D, #A " " #B},
const Entry SCALAR_TABLE[] = {
#include "scalar.def"
  {"s_and_saveexec", s_and_saveexec, "MASK", "MASK"}, {"s_or_saveexec", s_or_saveexec, "MASK", "MASK"},
  {"s_xor_saveexec", s_xor_saveexec, "MASK", "MASK"}, {"s_andn2_saveexec", s_andn2_saveexec, "MASK", "MASK"},
  {"s_orn2_saveexec", s_orn2_saveexec, "MASK", "MASK"}, {"s_nand_saveexec", s_nand_saveexec, "MASK", "MASK"},
  {"s_nor_saveexec", s_nor_saveexec, "MASK", "MASK"}, {"s_xnor_saveexec", s_xnor_saveexec, "MASK", "MASK"},
  {"s_andn1_saveexec", s_andn1_saveexec, "MASK", "MASK"}, {"s_orn1_saveexec", s_orn1_saveexec, "MASK", "MASK"},
  {"s_andn1_wrexec", s_andn1_wrexec, "MASK", "MASK"}, {"s_andn2_wrexec", s_andn2_wrexec, "MASK", "MASK"},
  {"s_nop", s_nop, "", "IMM"}, {"s_branch", s_branch, "", "LABEL"},
  {"s_cbranch_scc0", s_cbranch_scc0, "", "LABEL"}, {"s_cbranch_scc1", s_cbranch_scc1, "", "LABEL"},
  {"s_cbranch_vccz", s_cbranch_vccz, "", "LABEL"}, {"s_cbranch_vccnz", s_cbranch_vccnz, "", "LABEL"},
  {"s_cbranch_execz", s_cbranch_execz, "", "LABEL"}, {"s_cbranch_execnz", s_cbranch_execnz, "", "LABEL"},
  {"s_endpgm", s_endpgm, "", ""}, {"s_barrier", s_barrier, "", ""},
  {"s_barrier_signal", s_barrier_signal, "", "IMM"}, {"s_barrier_wait", s_barrier_wait, "", "IMM"},
  {"s_getpc_b64", s_getpc, "U64", ""}, {"s_setpc_b64", s_setpc, "", "U64"},
  {"s_swappc_b64", s_swappc, "U64", "U64"}, {"s_call_b64", s_call, "U64", "LABEL"},
  {"s_setreg_b32", s_setreg, "HWREG", "U32"}, {"s_setreg_imm32_b32", s_setreg, "HWREG", "U32"},
  {"s_getreg_b32", s_getreg, "U32", "HWREG"},
  {"s_round_mode", s_round_mode, "", "IMM"}, {"s_denorm_mode", s_denorm_mode, "", "IMM"},
  {"s_memtime", s_memtime, "U64", ""}, {"s_memrealtime", s_memtime, "U64", ""}, {"s_trap", s_trap, "", "IMM"},
  {"s_movrels_b32", s_movrels_b32, "U32", "U32"}, {"s_movreld_b32", s_movreld_b32, "U32", "U32"},
};
const int SCALAR_COUNT = sizeof SCALAR_TABLE / sizeof *SCALAR_TABLE;

/* --- the machine --- */

/* How many entries all tables have; the n-th of them. */
static const struct { const Entry *rows; const int *count; } TABLES[] = {
  {SCALAR_TABLE, &SCALAR_COUNT}, {SCALAR_FLOAT_TABLE, &SCALAR_FLOAT_COUNT}, {INTEGER_TABLE, &INTEGER_COUNT},
  {FLOAT_TABLE, &FLOAT_COUNT},
  {COMPARE_TABLE, &COMPARE_COUNT}, {CONVERT_TABLE, &CONVERT_COUNT}, {SCALE_TABLE, &SCALE_COUNT}, {PACKED_TABLE, &PACKED_COUNT},
  {LANES_TABLE, &LANES_COUNT}, {MEMORY_TABLE, &MEMORY_COUNT}, {MATRIX_TABLE, &MATRIX_COUNT},
};
enum { TABLE_COUNT = sizeof TABLES / sizeof *TABLES };
int pf_sim_entries(void) {
  int n = 0;
  for (int t = 0; t < TABLE_COUNT; t++) n += *TABLES[t].count;
  return n;
}
const Entry *pf_sim_entry(int n) {
  for (int t = 0; t < TABLE_COUNT; n -= *TABLES[t++].count)
    if (n < *TABLES[t].count) return &TABLES[t].rows[n];
  return 0;
}
int pf_sim_layout(int n) { /* that decode.py and machine.py agree with this compiler */
  const int sizes[] = {sizeof(Operand), sizeof(Inst), sizeof(Span), sizeof(Fault), sizeof(Counts), sizeof(Program),
                       sizeof(Launch), PF_LANES};
  return sizes[n];
}

static u64 random_next(u64 *state) { /* splitmix64 */
  u64 z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

static void count_step(Wave *w, const Inst *in) {
  Counts *c = &w->launch->counts[in - w->launch->program->insts];
  c->steps++;
  c->lanes += (u64)__builtin_popcountll(exec_of(w));
}

/* Until a barrier, the end, or for as long as one wave may keep the others waiting. */
static void stop_if_asked(Wave *w) {
  Launch *launch = w->launch;
  if (!launch->stops[w->pc] || w->number != launch->stop_wave) return;
  if (memcmp(w->group->id, launch->stop_group, sizeof launch->stop_group) || launch->stop_after-- > 0) return;
  memcpy(launch->stop_state, w->s, sizeof w->s);
  memcpy((u8 *)launch->stop_state + sizeof w->s, w->v, (u64)launch->vgprs * PF_LANES * 4);
  launch->stop_scc = w->scc;
  w->pc++;
  fail(w, FAULT_NONE, SPACE_CODE, 0, 0, 0, 0);
}

static void run_wave(Wave *w, u64 turn) {
  const Launch *launch = w->launch;
  const Inst *const insts = launch->program->insts;
  const u32 count = launch->program->inst_count;
  u64 steps = launch->steps;
  const u64 turn_ends = steps + turn, pause = turn_ends < launch->step_limit ? turn_ends : launch->step_limit;
  mode_changed(w);
  while (w->state == RUNNING) {
    if (w->pc >= count) { w->pc++; fail(w, FAULT_ADDRESS, SPACE_CODE, 0, 0, 4, 0); }
    const Inst *in = &insts[w->pc];
    if (__builtin_expect(launch->checks & COUNT, 0)) count_step(w, in);
    if (__builtin_expect(launch->stops != 0, 0)) stop_if_asked(w);
    w->pc++;
    in->run(w, in);
    steps += !(in->flags & PAIRED);
    if (__builtin_expect(steps > pause, 0)) {
      w->launch->steps = steps;
      if (steps > launch->step_limit) fail(w, FAULT_LIMIT, SPACE_CODE, 0, 0, 0, 0);
      return;
    }
  }
  w->launch->steps = steps;
}

static void start_wave(Wave *w, Group *g, u32 number, jmp_buf *out) {
  Launch *launch = g->launch;
  const u32 threads = launch->block[0] * launch->block[1] * launch->block[2];
  const u32 first = number * PF_LANES;
  u32 *v = w->v;
  u8 *scratch = w->scratch, *scratch_written = w->scratch_written;
  memset(w, 0, sizeof *w);
  w->v = v, w->scratch = scratch, w->scratch_written = scratch_written;
  w->group = g, w->launch = launch, w->number = number, w->out = out, w->pc = launch->entry, w->mode = launch->mode;
  /* What nothing has written holds a pattern that is a NaN, and no address. */
  memset(row(w, 0), 0xff, (u64)launch->used_vgprs * PF_LANES * 4);
  memset(row(w, AGPR_ROW), 0xff, (u64)launch->used_agprs * PF_LANES * 4);
  for (u32 i = 0; i < SGPRS; i++) w->s[i] = 0xfff7fff7;
  w->s[NULL_REGISTER] = 0;
  memcpy(w->s, launch->sgprs, 4 * launch->user_sgprs);
  u32 at = launch->user_sgprs;
  for (int d = 0; d < 3; d++)
    if (launch->group_ids >> d & 1) w->s[at++] = g->id[d];
  if (launch->group_ids >> 3 & 1) w->s[at] = 0; /* gfx90a: where the scratch of this wave begins; each has its own here */
  if (launch->generation >= 12) /* there they lie elsewhere, with the number of the wave */
    w->s[TTMP + 9] = g->id[0], w->s[TTMP + 7] = g->id[1] | g->id[2] << 16, w->s[TTMP + 8] = number << 25;
  u64 exec = 0;
  EACH_LANE {
    const u32 n = first + (u32)l;
    if (n >= threads) continue;
    exec |= (u64)1 << l;
    const u32 x = n % launch->block[0], y = n / launch->block[0] % launch->block[1],
              z = n / launch->block[0] / launch->block[1];
    w->v[l] = x | y << 10 | z << 20;
  }
  w->s[EXEC] = (u32)exec, w->s[EXEC + 1] = (u32)(exec >> 32);
  w->lanes = exec;
  exec_changed(w);
  if (launch->start_state) {
    memcpy(w->s, launch->start_state, sizeof w->s);
    memcpy(w->v, (const u8 *)launch->start_state + sizeof w->s, (u64)launch->vgprs * PF_LANES * 4);
    exec_changed(w);
  }
  if (launch->scratch_bytes) {
    memset(w->scratch, 0xff, (u64)launch->scratch_bytes * PF_LANES);
    memset(w->scratch_written, 0, (u64)launch->scratch_bytes * PF_LANES);
  }
}

/* When no wave of a group can go on: 0 if it has come to its end, else it has passed a barrier. */
static int pass_barrier(Group *g, Wave *waves) {
  u32 waiting = 0, last = 0;
  for (u32 i = 0; i < g->waves; i++)
    if (waves[i].state == AT_BARRIER) waiting++, last = i;
  if (g->pending.kind) fail(&waves[last], FAULT_UNINITIALISED, 0, 0, 0, 0, 0);
  if (!waiting) return 0;
  /* The hardware counts a wave that has ended as arrived; in HIP's terms the barrier was not reached by all threads. */
  for (u32 i = 0; i < g->waves; i++) {
    if (waves[i].state == ENDED) {
      g->launch->fault.other = i;
      fail(&waves[last], FAULT_BARRIER, SPACE_CODE, 0, 0, 0, 0);
    }
    waves[i].state = RUNNING;
  }
  g->epoch++;
  g->phase = g->next, g->next += g->waves * PF_LANES;
  g->barrier = g->time++;
  return 1;
}

static u32 running(const Group *g, const Wave *waves) {
  u32 count = 0;
  for (u32 i = 0; i < g->waves; i++) count += waves[i].state == RUNNING;
  return count;
}

/* All waves to their end; at a barrier, or when its turn is over, another one runs, in a random order. */
static void run_group(Group *g, Wave *waves, u32 *order, u64 *random) {
  enum { TURN = 1 << 18 };
  do {
    for (u32 i = 0; i < g->waves; i++) {
      const u32 j = i + (u32)(random_next(random) % (g->waves - i)), picked = order[j];
      order[j] = order[i], order[i] = picked;
      if (waves[picked].state == RUNNING) run_wave(&waves[picked], TURN);
    }
  } while (running(g, waves) || pass_barrier(g, waves));
}

enum { MOST_GROUPS = 8 }; /* at once */

/* What a launch needs: groups that run at once, with their waves side by side. */
typedef struct {
  Launch *launch;
  u32 waves, resident; /* of a group; groups at once */
  Group *groups;
  Wave *all;
  u32 *order;
  u8 *rows, *scratch, *lds;
  Shared shared;
  u64 random, step, next, left; /* groups come in a random walk: the next one, how many are left */
  jmp_buf out;
} Run;

static Wave *waves_of(const Run *run, u32 slot) { return run->all + (u64)slot * run->waves; }

/* Let the next group of the walk begin. */
static void start_group(Run *run, u32 slot) {
  Group *g = &run->groups[slot];
  Launch *launch = run->launch;
  const u64 n = run->next, groups = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2];
  run->next = (n + run->step) % groups, run->left--;
  g->index = (u32)n;
  g->id[0] = (u32)(n % launch->grid[0]);
  g->id[1] = (u32)(n / launch->grid[0] % launch->grid[1]);
  g->id[2] = (u32)(n / launch->grid[0] / launch->grid[1]);
  g->block = g->phase = g->next, g->next += run->waves * PF_LANES;
  g->epoch++; /* what the group before touched does not matter */
  forget_group(g);
  memset(g->lds, 0xff, launch->lds_bytes);
  memset(g->lds_written, 0, launch->lds_bytes);
  for (u32 k = 0; k < run->waves; k++) start_wave(&waves_of(run, slot)[k], g, k, &run->out);
}

/* Several groups at once: any wave that can go on runs a few instructions, now and then many. */
static void run_interleaved(Run *run) {
  enum { FEW = 32, MANY = 4096, RARELY = 16 };
  u32 slots[MOST_GROUPS], alive = run->resident;
  for (u32 i = 0; i < alive; i++) slots[i] = i, start_group(run, i);
  while (alive) {
    const u64 random = random_next(&run->random);
    const u32 at = (u32)(random % alive), slot = slots[at];
    Group *g = &run->groups[slot];
    Wave *waves = waves_of(run, slot);
    u32 chosen = (u32)(random >> 16) % running(g, waves), i = 0;
    while (waves[i].state != RUNNING || chosen-- > 0) i++;
    run_wave(&waves[i], random >> 32 & (RARELY - 1) ? 1 + (random >> 40) % FEW : MANY);
    if (running(g, waves) || pass_barrier(g, waves)) continue;
    if (run->left) start_group(run, slot);
    else slots[at] = slots[--alive];
  }
}

static int make_room(Run *run) {
  const Launch *launch = run->launch;
  const u64 count = (u64)run->waves * run->resident, row_bytes = (u64)launch->vgprs * PF_LANES * 4;
  const u64 scratch_bytes = (u64)launch->scratch_bytes * PF_LANES, lds = launch->lds_bytes + 64;
  run->groups = calloc(run->resident, sizeof *run->groups);
  run->all = calloc(count, sizeof *run->all);
  run->order = calloc(run->waves, sizeof *run->order);
  run->rows = aligned_alloc(64, count * row_bytes);
  run->scratch = scratch_bytes ? malloc(2 * count * scratch_bytes) : 0;
  run->lds = malloc(4 * lds * run->resident);
  run->shared.owners = calloc(launch->span_count + 1, sizeof *run->shared.owners);
  run->shared.pages = calloc(launch->span_count + 1, sizeof *run->shared.pages);
  if (!run->groups || !run->all || !run->order || !run->rows || (scratch_bytes && !run->scratch) || !run->lds ||
      !run->shared.owners || !run->shared.pages)
    return 0;
  for (u64 i = 0; i < count; i++) {
    run->all[i].v = (u32 *)(run->rows + i * row_bytes);
    run->all[i].scratch = run->scratch + 2 * i * scratch_bytes;
    run->all[i].scratch_written = run->all[i].scratch + scratch_bytes;
  }
  for (u32 i = 0; i < run->waves; i++) run->order[i] = i;
  for (u32 i = 0; i < run->resident; i++) {
    u8 *from = run->lds + 4 * lds * i;
    run->groups[i] = (Group){.launch = run->launch, .shared = &run->shared, .waves = run->waves, .lds = from,
                             .lds_written = from + lds, .writers = from + 2 * lds, .readers = from + 3 * lds};
  }
  return 1;
}

static void free_room(Run *run) {
  Launch *launch = run->launch;
  for (u32 i = 0; run->groups && i < run->resident; i++) forget_group(&run->groups[i]);
  for (u64 i = 0; run->shared.owners && i < launch->span_count; i++) free(run->shared.owners[i]);
  free_shadows(launch, &run->shared), free_caches(launch, &run->shared);
  free(run->shared.owners);
  free(run->groups), free(run->all), free(run->order), free(run->rows), free(run->scratch), free(run->lds);
}

/* How many groups run at once: enough to meet each other. */
static u32 residents(const Launch *launch, u32 waves, u64 groups) {
  enum { MOST_WAVES = 64 };
  u64 most = launch->modes & INTERLEAVE ? MOST_WAVES / waves : 1;
  most = most < 2 && launch->modes & INTERLEAVE ? 2 : most > MOST_GROUPS ? MOST_GROUPS : most;
  return (u32)(groups < most ? groups : most);
}

static void run_all(Run *run) {
  const Launch *launch = run->launch;
  const u64 groups = run->left;
  /* A random walk over all groups: a start and a step that shares no factor with their number. */
  u64 step = groups > 2 ? random_next(&run->random) % groups | 1 : 1;
  for (u64 a = step, b = groups; b; ) { const u64 r = a % b; a = b, b = r; if (!b && a != 1) { step = 1; } }
  run->step = step, run->next = random_next(&run->random) % groups;
  if (launch->modes & INTERLEAVE) run_interleaved(run);
  while (run->left) start_group(run, 0), run_group(&run->groups[0], run->all, run->order, &run->random);
  for (u32 die = 0; die < launch->dies; die++) write_back(run->launch, &run->shared, die);
}

/* 0: done, 1: a fault (launch->fault), 2: no memory, 3: stopped where asked */
int pf_sim_run(Launch *launch) {
  const u32 threads = launch->block[0] * launch->block[1] * launch->block[2], waves = (threads + PF_LANES - 1) / PF_LANES;
  const u64 groups = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2];
  const int rounding = fegetround();
  if (!groups) return 0;
  Run run = {.launch = launch, .waves = waves, .resident = residents(launch, waves, groups), .random = launch->seed,
             .left = groups, .shared = {.waves = groups * waves < 1u << 31 ? groups * waves : 0, .groups = groups}};
  volatile int status = 2;
  if (make_room(&run)) {
    if (!setjmp(run.out)) run_all(&run), status = 0;
    else status = launch->fault.kind == FAULT_NONE ? 3 : launch->fault.kind == FAULT_MEMORY ? 2 : 1;
  }
  scalar_finish(launch);
  fesetround(rounding);
  free_room(&run);
  return status;
}
