/* Vectors of 8-bit floats on GPUs, by pairs or fours where a GPU has a way to do that; pf_half.h has them one by one.
 *
 *   pf_f8e4m3fn_at(x, k)       number k of an array of codes, as a float; N, its length, is even, and k known when compiled
 *   pf_put_f8e4m3fn(to, x)     a vector of codes of floats            f8e4m3fnuz, f8e5m2: the same
 * Instructions for four codes to floats, of which all that is done for several of them is done once:
 *   2 where the GPU converts that kind; else 8 for f8e5m2 (a float16's upper half), and for f8e4m3fn 13 on gfx942, which
 *   converts another kind, 15 on gfx90a and 17 on gfx1100 by way of float16.
 */
#ifndef PF_FLOAT8_H
#define PF_FLOAT8_H

template <int N> PF_FN pf_u32 pf_word_around(const uint8_t (&x)[N], int k) { /* two bytes where N is no multiple of 4 */
  constexpr int BYTES = N % 4 ? 2 : 4;
  pf_u32 word = 0;
  __builtin_memcpy(&word, &x[k & -BYTES], BYTES);
  return word;
}
#define PF_UPPER(N, k) ((N) % 4 == 0 && (k) % 4 > 1) /* whether number k is in the upper half of that word */
#define PF_CONVERTED_PAIR(kind, word, upper) \
  ((upper) ? __builtin_amdgcn_cvt_pk_f32_##kind(word, 1) : __builtin_amdgcn_cvt_pk_f32_##kind(word, 0))

#define PF_FLOAT8_AT(name, number)                                            \
  template <int N> PF_FN float pf_##name##_at(const uint8_t (&x)[N], int k) { \
    const pf_u32 word = pf_word_around(x, k);                                 \
    return number;                                                            \
  }
#define PF_FLOAT8_PUT(name)                                                                   \
  template <int N> PF_FN void pf_put_##name(pf_vector<uint8_t, N> &to, const float (&x)[N]) { \
    PF_UNROLL                                                                                 \
    for (int k = 0; k < N; k++) to.at[k] = pf_f32_to_##name(x[k]);                            \
  }

/* One by one. */
#define PF_FLOAT8(name)                                                                                          \
  template <int N> PF_FN float pf_##name##_at(const uint8_t (&x)[N], int k) { return pf_##name##_to_f32(x[k]); } \
  PF_FLOAT8_PUT(name)

/* As float16 by pairs, first those with odd numbers. */
#define PF_FLOAT8_HALVES(name, unit)                                                    \
  PF_FLOAT8_AT(name, unit * pf_##name##_pair(k & 1 ? word : word << 8)[PF_UPPER(N, k)]) \
  PF_FLOAT8_PUT(name)

/* By instructions for pairs. */
#define PF_FLOAT8_PAIRS(name, kind)                                                                             \
  PF_FLOAT8_AT(name, PF_CONVERTED_PAIR(kind, word, PF_UPPER(N, k))[k & 1])                                      \
  template <int N> PF_FN void pf_put_##name(pf_vector<uint8_t, N> &to, const float (&x)[N]) {                   \
    constexpr int BYTES = N % 4 ? 2 : 4;                                                                        \
    PF_UNROLL                                                                                                   \
    for (int k = 0; k < N; k += BYTES) {                                                                        \
      pf_u32 word = __builtin_amdgcn_cvt_pk_##kind##_f32(x[k], x[k + 1], 0, 0);                                 \
      if (BYTES == 4) word = __builtin_amdgcn_cvt_pk_##kind##_f32(x[k + BYTES - 2], x[k + BYTES - 1], word, 1); \
      word = pf_one_nan_##kind(word);                                                                           \
      __builtin_memcpy(&to.at[k], &word, BYTES);                                                                \
    }                                                                                                           \
  }

#if PF_CONVERTS_OCP
PF_FLOAT8_PAIRS(f8e4m3fn, fp8)
PF_FLOAT8_PAIRS(f8e5m2, bf8)
#elif PF_CONVERTS_FNUZ
/* A code of OCP's is half the number here, but for NaN (0x7f becomes 0x80) and negative zero, which this kind has not:
 * magnitudes are converted, and multiplied by 2 or -2, which are bf8s made of 0x44 and the sign. */
PF_FN pf_u32 pf_fnuz_magnitudes(pf_u32 word) {
  const pf_u32 codes = word & 0x7f7f7f7fu;
  return codes + ((codes + 0x01010101u) >> 7 & 0x01010101u);
}
PF_FN pf_u32 pf_fnuz_signs(pf_u32 word) { return (word & 0x80808080u) | 0x44444444u; }
PF_FLOAT8_AT(f8e4m3fn, PF_CONVERTED_PAIR(fp8, pf_fnuz_magnitudes(word), PF_UPPER(N, k))[k & 1] *
                           PF_CONVERTED_PAIR(bf8, pf_fnuz_signs(word), PF_UPPER(N, k))[k & 1])
PF_FLOAT8_PUT(f8e4m3fn)
PF_FLOAT8_HALVES(f8e5m2, 1.0f)
#elif defined(__AMDGCN__)
PF_FLOAT8_HALVES(f8e4m3fn, 256.0f)
PF_FLOAT8_HALVES(f8e5m2, 1.0f)
#else
PF_FLOAT8(f8e4m3fn)
PF_FLOAT8(f8e5m2)
#endif
#if PF_CONVERTS_FNUZ
PF_FLOAT8_PAIRS(f8e4m3fnuz, fp8)
#else
PF_FLOAT8(f8e4m3fnuz)
#endif

#endif
