/* Packing of one panel; pf_gemm.h includes this once per operand, so that the two element types may differ.
 *
 *   dst[w * width + c] = word w of line c,   line c = src[c * stride + k * k_stride], k in [0, k)
 *
 * Reads count * k elements once and writes pf_words(k) * width words once. Three access patterns: lines that are
 * contiguous along k are transposed in 4 x 4 squares, lines that are neighbours in memory are copied word row by
 * word row, anything else is read element by element. Words past k and lines past `count` become zeros.
 */

/* Whether an element in memory is a word of the panel, so that nothing has to be converted. */
#define PF_PACK_PLAIN ((PF_PACK_TAG == PF_TAG_float32 || PF_PACK_TAG == PF_TAG_int32) && PF_GROUP == 1 && sizeof(pf_word_t) == 4)
#define PF_PACK_COLUMNS PF_GLUE(pf_pack_columns_, PF_PACK_SIDE)
#define PF_PACK_WORD PF_GLUE(pf_pack_word_, PF_PACK_SIDE)
#define PF_PACK_PANELS PF_GLUE(pf_pack_panels_, PF_PACK_SIDE)
#define PF_PACK_TILES PF_GLUE(pf_pack_tiles_, PF_PACK_SIDE)
#define PF_PACK_VECTOR PF_GLUE(pf_vector_, PF_PACK_SIDE)

/* The word of a line that starts at src and of which `left` elements remain (only the first PF_GROUP are read). */
PF_ALWAYS_INLINE pf_word_t PF_PACK_WORD(const PF_PACK_T *src, int64_t k_stride, int64_t left) {
#if PF_GROUP > 1
  pf_word_t word = 0;
  for (int64_t g = 0; g < PF_GROUP && g < left; g++) {
    const PF_PACK_T element = src[g * k_stride];
    __builtin_memcpy((char *)&word + g * sizeof(PF_PACK_T), &element, sizeof(PF_PACK_T));
  }
  return word;
#else
  (void)k_stride, (void)left;
  return PF_PACK_LOAD(src);
#endif
}

/* PF_LANES neighbouring elements in the accumulator's type, for the kernels that read an operand where it lies.
 * Intrinsics where gcc 12 takes __builtin_convertvector apart into scalars. */
PF_ALWAYS_INLINE pf_vec PF_PACK_VECTOR(const PF_PACK_T *src) {
#if PF_PACK_TAG == PF_TAG_bfloat16 && PF_AVX512
  return (pf_vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)src)), 16);
#elif PF_PACK_TAG == PF_TAG_bfloat16 && PF_NEON
  return (pf_vec)vshll_n_u16(vld1_u16(src), 16);
#elif PF_PACK_TAG == PF_TAG_bfloat16 && PF_SVE
  return (pf_vec)(pf_sve_u32)svlsl_n_u32_x(svptrue_b32(), svld1uh_u32(svptrue_b32(), src), 16);
#elif PF_PACK_TAG == PF_TAG_bfloat16
  typedef uint16_t narrow __attribute__((vector_size(PF_LANES * 2), aligned(2), may_alias));
  typedef uint32_t wide __attribute__((vector_size(PF_LANES * 4)));
  return (pf_vec)(__builtin_convertvector(*(const narrow *)src, wide) << 16);
#elif PF_PACK_TAG == PF_TAG_float16 && PF_AVX512
  return (pf_vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)src));
#elif PF_PACK_TAG == PF_TAG_float16 && PF_VECTOR_BYTES == 32 && defined(__F16C__)
  return (pf_vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)src));
#elif PF_PACK_TAG == PF_TAG_float16 && PF_SVE
  return (pf_vec)(pf_sve_f32)svcvt_f32_f16_x(svptrue_b32(), svreinterpret_f16(svld1uh_u32(svptrue_b32(), src)));
#elif PF_PACK_TAG == PF_TAG_float16 && PF_NEON
  return (pf_vec)vcvt_f32_f16((float16x4_t)vld1_u16(src));
#elif PF_PACK_TAG == PF_TAG_float16
  pf_vec lanes;
  for (int64_t lane = 0; lane < PF_LANES; lane++) lanes[lane] = pf_load_float16(src + lane);
  return lanes;
#elif PF_PACK_TAG == PF_TAG_int8 && PF_AVX512
  return (pf_vec)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)src));
#elif PF_PACK_TAG == PF_TAG_uint8 && PF_AVX512
  return (pf_vec)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)src));
#elif PF_PACK_TAG == PF_TAG_int8 && PF_SVE
  return (pf_vec)(pf_sve_s32)svld1sb_s32(svptrue_b32(), src);
#elif PF_PACK_TAG == PF_TAG_uint8 && PF_SVE
  return (pf_vec)(pf_sve_s32)svld1ub_s32(svptrue_b32(), src);
#else
  typedef PF_PACK_T narrow __attribute__((vector_size(PF_LANES * sizeof(PF_PACK_T)), aligned(sizeof(PF_PACK_T)), may_alias));
  return __builtin_convertvector(*(const narrow *)src, pf_vec);
#endif
}

PF_UNUSED static void PF_PACK_COLUMNS(pf_word_t *dst, int64_t width, const PF_PACK_T *src, int64_t count, int64_t k,
                                      int64_t stride, int64_t k_stride) {
  const int same_word = PF_GROUP > 1 || PF_PACK_PLAIN;
  const int64_t whole = k / PF_GROUP, words = pf_words(k);
  int64_t w = 0;
  if (k_stride == 1 && sizeof(pf_word_t) == 8 && PF_GROUP > 1) {
    for (; w < whole; w++)
      for (int64_t c = 0; c < count; c++) __builtin_memcpy(dst + w * width + c, src + c * stride + w * PF_GROUP, 8);
  } else if (k_stride == 1 && same_word && count >= 4 && whole >= 4) {
    pf_transpose((uint32_t *)dst, width, (const char *)src, stride * (int64_t)sizeof(PF_PACK_T), count, whole);
    w = whole;
  } else if (k_stride == 1 && sizeof(pf_word_t) == 4 && PF_GROUP == 1 && count >= 4 && count <= PF_NR && whole >= 16) {
    /* Convert 16 elements of every line, then transpose the square. */
    for (; w + 16 <= whole; w += 16) {
      pf_word_t square[PF_NR][16];
      for (int64_t c = 0; c < count; c++)
        for (int64_t i = 0; i < 16; i += PF_LANES) *(pf_vec *)(square[c] + i) = PF_PACK_VECTOR(src + c * stride + w + i);
      pf_transpose((uint32_t *)(dst + w * width), width, (const char *)square, sizeof square[0], count, 16);
    }
  } else if (stride == 1) {
    for (; w < whole; w++) {
      const PF_PACK_T *line = src + w * PF_GROUP * k_stride;
      pf_word_t *to = dst + w * width;
#if PF_ARM && PF_GROUP == 1
      /* Panels are narrow there: the overhead of a loop would be most of it. */
      if (count == PF_NR)
        for (int v = 0; v < PF_NV; v++) *(pf_vec *)(to + v * PF_LANES) = PF_PACK_VECTOR(line + v * PF_LANES);
      else
#endif
#if PF_GROUP == 1
        for (int64_t c = 0; c < count; c++) to[c] = PF_PACK_LOAD(line + c);
#elif PF_ARM
      int64_t c = 0;
      for (; c + 8 <= count; c += 8) pf_interleave(to + c, line + c, k_stride);
      for (; c < count; c++) to[c] = PF_PACK_WORD(line + c, k_stride, PF_GROUP);
#elif PF_GROUP == 2
      for (int64_t c = 0; c < count; c++) to[c] = (uint32_t)line[c] | (uint32_t)line[c + k_stride] << 16;
#else
      const uint8_t *byte = (const uint8_t *)line;
      for (int64_t c = 0; c < count; c++)
        to[c] = (uint32_t)byte[c] | (uint32_t)byte[c + k_stride] << 8 | (uint32_t)byte[c + 2 * k_stride] << 16 |
                (uint32_t)byte[c + 3 * k_stride] << 24;
#endif
    }
  }
  for (; w * PF_GROUP < k; w++)
    for (int64_t c = 0; c < count; c++)
      dst[w * width + c] = PF_PACK_WORD(src + c * stride + w * PF_GROUP * k_stride, k_stride, k - w * PF_GROUP);
  for (int64_t i = w * width; i < words * width; i++) dst[i] = 0;
  if (count < width)
    for (int64_t i = 0; i < w; i++)
      for (int64_t c = count; c < width; c++) dst[i * width + c] = 0;
}

#if PF_AMX
/* The same panel as AMX wants its left operand: dst[step][line][16 words]. */
PF_UNUSED static void PF_PACK_TILES(pf_word_t *dst, int64_t height, const PF_PACK_T *src, int64_t count, int64_t k,
                                    int64_t stride, int64_t k_stride) {
  enum { step_elements = 16 * PF_GROUP };
  for (; k > 0; k -= step_elements, src += step_elements * k_stride, dst += height * 16) {
    if (k_stride == 1 && k >= step_elements) {
      for (int64_t line = 0; line < count; line++) __builtin_memcpy(dst + line * 16, src + line * stride, 64);
      for (int64_t i = count * 16; i < height * 16; i++) dst[i] = 0;
    } else {
      pf_word_t columns[16 * PF_MR];
      PF_PACK_COLUMNS(columns, height, src, count, pf_min(k, step_elements), stride, k_stride);
      pf_transpose(dst, 16, (const char *)columns, height * 4, 16, height);
    }
  }
}
#endif

/* Panels of PF_PACK_STEP lines, one behind the other. */
PF_UNUSED static void PF_PACK_PANELS(pf_word_t *dst, const PF_PACK_T *src, int64_t count, int64_t k, int64_t stride,
                                     int64_t k_stride) {
#if PF_AVX512
  if (stride == 1 && PF_PACK_PLAIN) {
    pf_copy_rows((uint32_t *)dst, PF_PACK_STEP, PF_PACK_UNIT, (const uint32_t *)src, k_stride, count, k);
    return;
  }
#if PF_AMX && PF_GROUP == 2
  if (stride == 1 && !PF_PACK_AS_TILES) {
    pf_interleave_rows((uint32_t *)dst, PF_PACK_STEP, PF_PACK_UNIT, (const uint16_t *)src, k_stride, count, k);
    return;
  }
#endif
#endif
  for (int64_t line = 0; line < count; line += PF_PACK_STEP) {
    const int64_t here = pf_min(PF_PACK_STEP, count - line);
    PF_PACK_PANEL(dst + line * pf_words(k), pf_round_up(here, PF_PACK_UNIT), src + line * stride, here, k, stride, k_stride);
  }
}

#undef PF_PACK_PLAIN
#undef PF_PACK_COLUMNS
#undef PF_PACK_WORD
#undef PF_PACK_PANELS
#undef PF_PACK_TILES
#undef PF_PACK_VECTOR
#undef PF_PACK_SIDE
#undef PF_PACK_PANEL
#undef PF_PACK_STEP
#undef PF_PACK_AS_TILES
#undef PF_PACK_UNIT
#undef PF_PACK_T
#undef PF_PACK_TAG
#undef PF_PACK_LOAD
