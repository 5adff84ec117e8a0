/* Hopper's wgmma: four waves multiply 64 rows by 16 k at once. The right operand lies in LDS, the left one there or in
 * registers; sums stay in registers, of each wave those of 16 rows, as pf_mma_nvidia.h describes them.
 *
 * Instructions are asynchronous: pf_wgmma_begin, some of them, pf_wgmma_end make a group; pf_wgmma_wait<N> waits for all
 * groups but the last N. Until then nobody may touch their sums, left operands in registers or LDS.
 */
#ifndef PF_WGMMA_H
#define PF_WGMMA_H

/* Where an operand begins: its swizzle is that of 128 bytes, eight lines of those follow each other, and groups of 64
 * numbers that lie across are LINES lines apart. In units of 16 bytes. */
template <int LINES> PF_FN uint64_t pf_wgmma_place(const pf_piece *at) {
  const uint64_t line = 128 / 16;
  return 1ull << 62 | 8 * line << 32 | LINES * line << 16 | (pf_lds_address(at) >> 4 & 0x3fff);
}
PF_FN void pf_wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PF_FN void pf_wgmma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> PF_FN void pf_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
/* Copies are a thread's writes, which wgmma sees after a fence only. */
PF_FN void pf_wgmma_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* T's instruction over 64 rows and 16 * TILES columns. c: sums of 16 columns each; a, b: where operands lie (pf_wgmma_place),
 * or four words of a; ACROSS: an operand lies across; ADD: to what is in c. */
template <class T, int TILES> struct pf_wgmma;
#define PF_WGMMA_TILE(j)                                                                           \
  "+f"(c[j].at[0]), "+f"(c[j].at[1]), "+f"(c[j].at[2]), "+f"(c[j].at[3]), "+f"(c[j].at[4]),        \
      "+f"(c[j].at[5]), "+f"(c[j].at[6]), "+f"(c[j].at[7])
#define PF_WGMMA_TILES_4(j) PF_WGMMA_TILE(j), PF_WGMMA_TILE(j + 1), PF_WGMMA_TILE(j + 2), PF_WGMMA_TILE(j + 3)
#define PF_WGMMA_TILES_8(j) PF_WGMMA_TILES_4(j), PF_WGMMA_TILES_4(j + 4)
#define PF_WGMMA_TILES_16(j) PF_WGMMA_TILES_8(j), PF_WGMMA_TILES_8(j + 8)
#define PF_WGMMA_REGISTERS_4                                                                                     \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,"   \
  "%29,%30,%31"
#define PF_WGMMA_REGISTERS_8                                                                                     \
  PF_WGMMA_REGISTERS_4 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,"   \
  "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PF_WGMMA_REGISTERS_16                                                                                    \
  PF_WGMMA_REGISTERS_8 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,"   \
  "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,"    \
  "%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
/* X0 ..: the operands behind the sums */
#define PF_WGMMA(name, TILES, N, X0, X1, X2, X3, X4, X5, X6)                                                     \
  template <> struct pf_wgmma<pf_mma_##name, TILES> {                                                            \
    template <int A_ACROSS, int B_ACROSS, int ADD, class S> PF_FN void call(S *c, uint64_t a, uint64_t b) {      \
      asm volatile(                                                                                              \
          "{ .reg .pred add; setp.ne.u32 add, " X2 ", 0; "                                                       \
          "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." #name "." #name " {" PF_WGMMA_REGISTERS_##TILES       \
          "}, " X0 ", " X1 ", add, 1, 1, " X3 ", " X4 "; }"                                                      \
          : PF_WGMMA_TILES_##TILES(0)                                                                            \
          : "l"(a), "l"(b), "n"(ADD), "n"(A_ACROSS), "n"(B_ACROSS));                                             \
    }                                                                                                            \
    template <int B_ACROSS, int ADD, class S> PF_FN void call_held(S *c, const uint32_t *a, uint64_t b) {        \
      asm volatile(                                                                                              \
          "{ .reg .pred add; setp.ne.u32 add, " X5 ", 0; "                                                       \
          "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." #name "." #name " {" PF_WGMMA_REGISTERS_##TILES       \
          "}, {" X0 ", " X1 ", " X2 ", " X3 "}, " X4 ", add, 1, 1, " X6 "; }"                                    \
          : PF_WGMMA_TILES_##TILES(0)                                                                            \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD), "n"(B_ACROSS));                        \
    }                                                                                                            \
  };
#define PF_WGMMA_SIZES(name)                                                         \
  PF_WGMMA(name, 4, "64", "%32", "%33", "%34", "%35", "%36", "%37", "%38")           \
  PF_WGMMA(name, 8, "128", "%64", "%65", "%66", "%67", "%68", "%69", "%70")          \
  PF_WGMMA(name, 16, "256", "%128", "%129", "%130", "%131", "%132", "%133", "%134")
PF_WGMMA_SIZES(f16)
PF_WGMMA_SIZES(bf16)

#endif
