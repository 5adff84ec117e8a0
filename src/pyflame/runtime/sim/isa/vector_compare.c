/* Vector comparisons. */
#include "vector.h"

/* The bit of v_cmp_class that a float answers to: signalling NaN, quiet NaN, then from -infinity to infinity. */
static inline u32 class_of(int negative, int top, int bottom, int quiet, int fraction) {
  if (top && fraction) return quiet ? 1 : 0;
  const u32 above = top ? 0 : !bottom ? 1 : fraction ? 2 : 3; /* infinite, normal, denormal, zero */
  return negative ? 2 + above : 9 - above;
}

#define FLOAT_CONDITIONS(NAME, T)                                                                     \
  CMP(v_cmp_f_##NAME, T, T, d = 0)                                                                    \
  CMP(v_cmp_lt_##NAME, T, T, d = a < b)                                                               \
  CMP(v_cmp_eq_##NAME, T, T, d = a == b)                                                              \
  CMP(v_cmp_le_##NAME, T, T, d = a <= b)                                                              \
  CMP(v_cmp_gt_##NAME, T, T, d = a > b)                                                               \
  CMP(v_cmp_lg_##NAME, T, T, d = a < b || a > b)                                                      \
  CMP(v_cmp_ge_##NAME, T, T, d = a >= b)                                                              \
  CMP(v_cmp_o_##NAME, T, T, d = a == a && b == b)                                                     \
  CMP(v_cmp_u_##NAME, T, T, d = a != a || b != b)                                                     \
  CMP(v_cmp_nge_##NAME, T, T, d = !(a >= b))                                                          \
  CMP(v_cmp_nlg_##NAME, T, T, d = !(a < b || a > b))                                                  \
  CMP(v_cmp_ngt_##NAME, T, T, d = !(a > b))                                                           \
  CMP(v_cmp_nle_##NAME, T, T, d = !(a <= b))                                                          \
  CMP(v_cmp_neq_##NAME, T, T, d = !(a == b))                                                          \
  CMP(v_cmp_nlt_##NAME, T, T, d = !(a < b))                                                           \
  CMP(v_cmp_tru_##NAME, T, T, d = 1)
#define INTEGER_CONDITIONS(NAME, T)                                                                   \
  CMP(v_cmp_f_##NAME, T, T, d = 0)                                                                    \
  CMP(v_cmp_lt_##NAME, T, T, d = a < b)                                                               \
  CMP(v_cmp_eq_##NAME, T, T, d = a == b)                                                              \
  CMP(v_cmp_le_##NAME, T, T, d = a <= b)                                                              \
  CMP(v_cmp_gt_##NAME, T, T, d = a > b)                                                               \
  CMP(v_cmp_ne_##NAME, T, T, d = a != b)                                                              \
  CMP(v_cmp_ge_##NAME, T, T, d = a >= b)                                                              \
  CMP(v_cmp_t_##NAME, T, T, d = 1)

#include "vector_compare.def"
#include "rows.h"
const Entry COMPARE_TABLE[] = {
#include "vector_compare.def"
};
const int COMPARE_COUNT = sizeof COMPARE_TABLE / sizeof *COMPARE_TABLE;
