/* Orthogonal polynomials of degree n, cut to a whole number, of double; floats are computed in double.
 *
 * By their recurrences, which stop where values overflow, and give NaN for degrees above 2^20: nobody waits for those.
 * Chebyshev's are waves of acos(x) within [-1, 1], so that large degrees cost no more there. A degree below 0, and one that
 * is no number, gives 0, as in PyTorch.
 */
#ifndef PF_POLYNOMIAL_H
#define PF_POLYNOMIAL_H

/* p, q: of degrees k - 1 and k */
#define PF_POLYNOMIAL(name, first, next)                                                                       \
  PF_FN double pf_##name##_f64(double x, double n) {                                                           \
    if (!(n >= 1.0 && n < INFINITY)) return n > -1.0 && n < 1.0 ? 1.0 : 0.0;                                   \
    if (n >= 1048577.0) return NAN;                                                                            \
    double p = 1.0, q = first;                                                                                 \
    for (double k = 1.0; k + 1.0 <= n && q == q; k += 1.0) {                                                   \
      double r = next;                                                                                         \
      p = q;                                                                                                   \
      q = r;                                                                                                   \
    }                                                                                                          \
    return q;                                                                                                  \
  }                                                                                                            \
  PF_FN float pf_##name##_f32(float x, float n) { return (float)pf_##name##_f64((double)x, (double)n); }

PF_POLYNOMIAL(hermite_polynomial_h, 2.0 * x, 2.0 * (x * q - k * p))
PF_POLYNOMIAL(hermite_polynomial_he, x, x * q - k * p)
PF_POLYNOMIAL(laguerre_polynomial_l, 1.0 - x, ((2.0 * k + 1.0 - x) * q - k * p) / (k + 1.0))
PF_POLYNOMIAL(legendre_polynomial_p, x, ((2.0 * k + 1.0) * x * q - k * p) / (k + 1.0))

/* `wave`: with t = acos(x); `end`: at 1, times 1 or -1 at -1 */
#define PF_CHEBYSHEV(kind, first, wave, end)                                                                   \
  PF_POLYNOMIAL(chebyshev_short_##kind, first, 2.0 * x * q - p)                                                \
  PF_FN double pf_chebyshev_polynomial_##kind##_f64(double x, double n) {                                      \
    if (!(n > 6.0 && n < INFINITY && fabs(x) <= 1.0)) return pf_chebyshev_short_##kind##_f64(x, n);            \
    double t = acos(x);                                                                                        \
    n = floor(n);                                                                                              \
    if (fabs(x) < 1.0) return wave;                                                                            \
    return x > 0.0 || fmod(n, 2.0) == 0.0 ? end : -(end);                                                      \
  }                                                                                                            \
  PF_FN float pf_chebyshev_polynomial_##kind##_f32(float x, float n) {                                         \
    return (float)pf_chebyshev_polynomial_##kind##_f64((double)x, (double)n);                                  \
  }

PF_CHEBYSHEV(t, x, cos(n * t), 1.0)
PF_CHEBYSHEV(u, 2.0 * x, sin((n + 1.0) * t) / sin(t), n + 1.0)
PF_CHEBYSHEV(v, 2.0 * x - 1.0, cos((n + 0.5) * t) / cos(0.5 * t), x > 0.0 ? 1.0 : 2.0 * n + 1.0)
PF_CHEBYSHEV(w, 2.0 * x + 1.0, sin((n + 0.5) * t) / sin(0.5 * t), x > 0.0 ? 2.0 * n + 1.0 : 1.0)

#endif
