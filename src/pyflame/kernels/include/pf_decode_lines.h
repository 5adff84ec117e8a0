/* Lines of an encoded weight as an operand of a block's tile: decoded on their way to LDS, where they lie as K::mma's numbers.
 *
 * K says, besides what pf_mma_loop.h or pf_mma_async.h asks for, `decoder` (pf_decode.h) and `number`, the element type
 * (pf_element.h) that decoded numbers are rounded to. A thread decodes pieces of PF_PIECE neighbours in registers and writes
 * them as whole pieces of 16 bytes, eight lanes to all banks. Lines beyond the last repeat the last one; beyond the last k
 * there are zeros.
 *
 * Bytes: a step's share of each line once, as it is encoded; neighbouring lanes read neighbouring bytes of a line.
 */
#ifndef PF_DECODE_LINES_H
#define PF_DECODE_LINES_H
#include "pf_decode.h"
#include "pf_mma_loop.h"

/* What a thread decodes of a step of LINES lines and DEPTH k, which lies in LDS as panels of PANEL k. */
template <class K, int LINES, int DEPTH, int PANEL> struct pf_decoded {
  typedef typename K::decoder decoder;
  typedef typename K::mma::element element;
  enum {
    FAST = PANEL / PF_PIECE,
    PARTS = LINES * DEPTH / PF_PIECE,
    COUNT = (PARTS + K::THREADS - 1) / K::THREADS,
    WHOLE = PARTS % K::THREADS == 0,
    EACH = PF_MMA_PIECE / (int)sizeof(element),
    PIECES = PF_PIECE / EACH,
  };
  const uint8_t *line[COUNT];
  int at; /* k of the step at hand */

  PF_FN int part(int s) { return pf_thread() + s * K::THREADS; }
  PF_FN int has(int s) { return WHOLE || part(s) < PARTS; }
  PF_FN int line_of(int s) { return part(s) / FAST % LINES; }
  PF_FN int panel_of(int s) { return part(s) / (FAST * LINES); }
  PF_FN int within(int s) { return part(s) % FAST * PF_PIECE; } /* k, of the panel */

  PF_FN pf_piece packed(const float *w) {
    pf_piece out;
    PF_UNROLL
    for (int i = 0; i < 4; i++)
      if constexpr (sizeof(element) == 2)
        out.at[i] = pf_pair<typename K::number>::of(w[2 * i], w[2 * i + 1]);
      else
        out.at[i] = pf_bits_f32(K::lds(K::number::store(w[i])));
    return out;
  }
  /* `stride`: of lines, in numbers, as if they were decoded. */
  PF_MEMBER void begin(const uint8_t *data, int first, int lines, int64_t stride, int64_t, int k) {
    at = k;
    PF_UNROLL
    for (int s = 0; s < COUNT; s++)
      line[s] = data + pf_least(first + line_of(s), lines - 1) * (stride / decoder::BLOCK * decoder::NBYTES);
  }
  /* One of its pieces of the step at hand. EDGE: fewer than DEPTH k are left, `rest` of them. */
  template <int EDGE> PF_MEMBER void decode(int s, int rest, pf_piece *to) const {
    const int k = panel_of(s) * PANEL + within(s);
    float w[PF_PIECE];
    pf_decode_piece<decoder>(line[s], (uint32_t)(at + k), EDGE ? rest - k : PF_PIECE, w);
    PF_UNROLL
    for (int p = 0; p < PIECES; p++) to[p] = packed(w + p * EACH);
  }
};

/* For pf_mma_loop.h: panels are its chunks. */
template <class K, int LINES>
struct pf_decoded_lines : pf_decoded<K, LINES, pf_mma_loop<K>::DEPTH, pf_mma_loop<K>::DEPTH / K::CHUNKS> {
  typedef pf_decoded<K, LINES, pf_mma_loop<K>::DEPTH, pf_mma_loop<K>::DEPTH / K::CHUNKS> base;
  pf_piece held[base::COUNT][base::PIECES];

  template <int EDGE> PF_MEMBER void fetch(int rest) {
    PF_UNROLL
    for (int s = 0; s < base::COUNT; s++)
      if (base::has(s)) this->template decode<EDGE>(s, rest, held[s]);
    this->at += pf_mma_loop<K>::DEPTH;
  }
  PF_MEMBER void put(pf_piece *to) const {
    PF_UNROLL
    for (int s = 0; s < base::COUNT; s++) {
      if (!base::has(s)) continue;
      pf_piece *chunk = to + base::panel_of(s) * pf_mma_chunk<K>::PIECES;
      PF_UNROLL
      for (int p = 0; p < base::PIECES; p++)
        chunk[pf_mma_place(base::line_of(s), base::within(s) / base::EACH + p)] = held[s][p];
    }
  }
};

#endif
