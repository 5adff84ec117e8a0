/* What a thread fetches of one operand's lines for a step: COUNT vectors of WIDTH numbers, along k or across lines.
 *
 * `Map` says which: WIDTH, COUNT, DEPTH (k of a step), has(s) whether there is a vector s, line_of(s) and k_of(s) where
 * it begins. VECTOR: neighbours lie in memory as aligned vectors, else they are loaded one by one, at any strides. Lines
 * beyond the last repeat the last one; beyond the last k there are zeros.
 * What was fetched is held as words: in registers of 32 bits narrower numbers would take one each.
 */
#ifndef PF_STRIPS_H
#define PF_STRIPS_H

/* Number e of those that lie in words. */
template <class T, class W> PF_FN T pf_number_in(const W &words, int e) {
  T x;
  if constexpr (sizeof(T) < 4) {
    enum { EACH = 4 / (int)sizeof(T), BITS = 8 * (int)sizeof(T) };
    x = (T)(words.at[e / EACH] >> e % EACH * BITS);
  } else {
    enum { EACH = (int)sizeof(T) / 4 };
    __builtin_memcpy(&x, &words.at[e * EACH], sizeof(T));
  }
  return x;
}

template <class K, class Map, int ALONG_K, int VECTOR> struct pf_strips {
  typedef typename K::stored stored;
  enum { WIDTH = Map::WIDTH, COUNT = Map::COUNT };
  typedef pf_vector<stored, WIDTH> vector;
  typedef pf_vector<uint32_t, (int)sizeof(vector) / 4> words;
  const stored *at[COUNT];
  int beyond[COUNT]; /* lines from the vector's first to the last there is */
  int64_t line_step, k_step;
  words held[COUNT];

  PF_MEMBER const words &whole(int s) const { return held[s]; }
  PF_MEMBER stored number(int s, int e) const { return pf_number_in<stored>(held[s], e); }

  PF_MEMBER void begin(const stored *base, int first, int lines, int64_t line_stride, int64_t k_stride, int k) {
    line_step = line_stride, k_step = k_stride;
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      const int line = pf_least(first + Map::line_of(s), VECTOR && !ALONG_K ? lines - WIDTH : lines - 1);
      beyond[s] = lines - 1 - line;
      at[s] = base + line * line_step + (k + Map::k_of(s)) * k_step;
    }
  }
  /* EDGE: fewer than DEPTH k are left, `rest` of them. */
  template <int EDGE> PF_MEMBER void fetch(int rest) {
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      if (VECTOR) {
        PF_UNROLL
        for (int w = 0; w < (int)(sizeof(words) / 4); w++) held[s].at[w] = 0;
        if (Map::has(s) && (!EDGE || Map::k_of(s) < rest)) held[s] = *(const words *)at[s];
      } else {
        vector found;
        PF_UNROLL
        for (int e = 0; e < WIDTH; e++) {
          const int in = Map::has(s) && (!EDGE || Map::k_of(s) + (ALONG_K ? e : 0) < rest);
          const int64_t offset = ALONG_K ? e * k_step : pf_least(e, beyond[s]) * line_step;
          found.at[e] = in ? at[s][offset] : (stored)0;
        }
        __builtin_memcpy(&held[s], &found, sizeof(found));
      }
      at[s] += Map::DEPTH * k_step;
    }
  }
};

#endif
