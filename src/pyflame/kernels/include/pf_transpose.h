/* Squares of 4 x 4 words, turned in registers: what packing of panels is made of. */
#ifndef PF_TRANSPOSE_H
#define PF_TRANSPOSE_H

typedef uint32_t pf_four __attribute__((vector_size(16), aligned(1), may_alias));

#if defined(__clang__) || __GNUC__ >= 12
#define PF_SHUFFLE(T, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PF_SHUFFLE(T, a, b, ...) __builtin_shuffle(a, b, (T){__VA_ARGS__})
#endif

/* dst[c * dst_stride + r] = word c of the row at src + r * src_bytes, for a 4 x 4 square of 4-byte words. */
PF_ALWAYS_INLINE void pf_transpose_4x4(uint32_t *dst, int64_t dst_stride, const char *src, int64_t src_bytes) {
  pf_four r0 = *(const pf_four *)src, r1 = *(const pf_four *)(src + src_bytes);
  pf_four r2 = *(const pf_four *)(src + 2 * src_bytes), r3 = *(const pf_four *)(src + 3 * src_bytes);
  pf_four low01 = PF_SHUFFLE(pf_four, r0, r1, 0, 4, 1, 5), high01 = PF_SHUFFLE(pf_four, r0, r1, 2, 6, 3, 7);
  pf_four low23 = PF_SHUFFLE(pf_four, r2, r3, 0, 4, 1, 5), high23 = PF_SHUFFLE(pf_four, r2, r3, 2, 6, 3, 7);
  *(pf_four *)dst = PF_SHUFFLE(pf_four, low01, low23, 0, 1, 4, 5);
  *(pf_four *)(dst + dst_stride) = PF_SHUFFLE(pf_four, low01, low23, 2, 3, 6, 7);
  *(pf_four *)(dst + 2 * dst_stride) = PF_SHUFFLE(pf_four, high01, high23, 0, 1, 4, 5);
  *(pf_four *)(dst + 3 * dst_stride) = PF_SHUFFLE(pf_four, high01, high23, 2, 3, 6, 7);
}

#endif
