/* pf_decode_lines.h for pf_mma_async.h: a step's pieces go into LDS while earlier steps are multiplied.
 *
 * A thread waits for the bytes that it decodes, so they are brought to L2 some steps before.
 */
#ifndef PF_DECODE_PANELS_H
#define PF_DECODE_PANELS_H
#include "pf_decode_lines.h"
#include "pf_mma_async.h"

template <class K, int LINES>
struct pf_decoded_panels : pf_decoded<K, LINES, pf_panels<K, LINES, 1>::DEPTH, pf_panels<K, LINES, 1>::PANEL> {
  typedef pf_panels<K, LINES, 1> panels;
  typedef pf_decoded<K, LINES, panels::DEPTH, panels::PANEL> base;
  enum { EARLY = 2 * panels::DEPTH };

  /* The next step, of which `rest` k are left. */
  PF_MEMBER void copy(pf_piece *to, int rest) {
    if (rest >= panels::DEPTH)
      decode_all<0>(to, rest);
    else
      decode_all<1>(to, rest);
    this->at += panels::DEPTH;
  }
  template <int EDGE> PF_MEMBER void decode_all(pf_piece *to, int rest) const {
    PF_UNROLL
    for (int s = 0; s < base::COUNT; s++) {
      if (!base::has(s)) continue;
      const int k = base::panel_of(s) * panels::PANEL + base::within(s), first = panels::piece(base::line_of(s), k);
      if (!EDGE && k + EARLY < rest) pf_prefetch(this->line[s] + bytes_before(this->at + k + EARLY));
      pf_piece held[base::PIECES];
      this->template decode<EDGE>(s, rest, held);
      PF_UNROLL
      for (int p = 0; p < base::PIECES; p++) to[panels::place(first + p)] = held[p];
    }
  }
  /* About, where a block has several pieces. */
  PF_FN uint32_t bytes_before(uint32_t k) {
    typedef typename base::decoder D;
    return k / D::BLOCK * D::NBYTES + k % D::BLOCK * D::NBYTES / D::BLOCK;
  }
};

#endif
