/* pf_dot4(a, b, sum): sum + the products of the four signed bytes of two words. */
#ifndef PF_DOT4_H
#define PF_DOT4_H

#if defined(__CUDACC__)
PF_FN int pf_dot4(int a, int b, int sum) { return __dp4a(a, b, sum); }
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || \
    defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || \
    defined(__gfx1033__) || defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
PF_FN int pf_dot4(int a, int b, int sum) { return __builtin_amdgcn_sdot4(a, b, sum, false); }
#elif defined(__GFX11__) || defined(__GFX12__)
PF_FN int pf_dot4(int a, int b, int sum) { return __builtin_amdgcn_sudot4(true, a, true, b, sum, false); }
#else
PF_FN int pf_dot4(int a, int b, int sum) {
  PF_UNROLL
  for (int k = 0; k < 32; k += 8) sum += (int8_t)(a >> k) * (int8_t)(b >> k);
  return sum;
}
#endif

#endif
