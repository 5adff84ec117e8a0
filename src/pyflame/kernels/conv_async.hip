/* Convolutions of 16-bit floats on NVIDIA's GPUs, sm_80 and newer: conv.hip's implicit GEMM, arguments and epilogue over
 * pf_mma_async.h, where both operands lie in aligned vectors of 16 bytes: eight channels, which are of one tap.
 *
 * Here rows are pixels and columns output channels, which then are handed over as they lie in memory. A piece that no pixel
 * meets is written as zeros by the copy itself. Pixels are worked out once per thread, the taps of a step once per block,
 * one step before they are copied.
 */
#ifndef PF_CONV_ASYNC_HIP
#define PF_CONV_ASYNC_HIP
#include "conv.hip"
#include "pf_mma_async.h"

/* The pieces of one operand that a thread copies; `Side` as in pf_conv_strips. */
template <class K, int LINES, int ALONG_K, class Side> struct pf_conv_panels : pf_panels<K, LINES, ALONG_K> {
  typedef pf_panels<K, LINES, ALONG_K> panels;
  typedef typename K::stored stored;
  enum {
    COUNT = (panels::PARTS + K::THREADS - 1) / K::THREADS,
    WHOLE = panels::PARTS % K::THREADS == 0,
  };
  const stored *base;
  typename Side::line line[COUNT];

  PF_FN int number(int s) { return pf_thread() + s * K::THREADS; }
  PF_MEMBER void begin(pf_late_args arg, const stored *from, int first, int lines) {
    base = from;
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      const int last = lines - (ALONG_K ? 1 : (int)panels::EACH);
      line[s] = Side::line_of(arg, pf_least(first + panels::line_of(number(s)), last));
    }
  }
  PF_MEMBER void copy(pf_late_args arg, pf_piece *to, const pf_tap<K> *taps, int rest) const {
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      const int k = panels::k_of(number(s));
      typename K::pos at = 0;
      if (WHOLE || number(s) < panels::PARTS) {
        const int found = Side::meets(arg, line[s], taps[k], at) & (k < rest);
        pf_copy_async(to + panels::place(pf_thread()) + s * K::THREADS, base + (found ? at : 0), found);
      }
    }
  }
};

template <class K> struct pf_conv_async_in {
  typedef pf_conv_panels<K, K::ROWS, K::A_ALONG_K, pf_conv_x<K>> x_panels;
  enum { PREPARES = 1, DEPTH = x_panels::DEPTH };
  pf_late_args arg;
  pf_tap<K> (*taps)[DEPTH];
  x_panels x;
  pf_conv_panels<K, K::COLS, K::B_ALONG_K, pf_conv_w<K>> w;

  PF_MEMBER void prepare(int k, int end, int half) {
    pf_conv_taps<K, DEPTH>(arg, taps[half], k, end);
  }
  PF_MEMBER void copy(pf_piece *to, int k, int end, int half) const {
    x.copy(arg, to, taps[half], end - k);
    w.copy(arg, to + x_panels::PARTS, taps[half], end - k);
  }
};

/* Results whose rows are pixels. */
template <class Result> struct pf_conv_turned {
  Result result;
  template <class S> PF_MEMBER void operator()(int i, int j, S sum) const { result(j, i, sum); }
  template <class S, int N> PF_MEMBER void several(int i, int j, const S (&sums)[N]) const { result.several(j, i, sums); }
};

template <class K, class Out>
PF_FN void pf_conv_async(const typename K::stored *x, const typename K::stored *w, pf_late_args arg, const Out &out) {
  typedef pf_async_loop<K> loop;
  PF_SHARED pf_tap<K> taps[2][loop::DEPTH];
  PF_DYNAMIC_LDS(pf_piece, lds, loop::LDS_PIECES);
  pf_conv_block<K, K::COLS, K::ROWS> block;
  block.find(arg);
  pf_conv_async_in<K> in;
  in.taps = taps;
  block.begin(in, x, w, arg);
  loop sums;
  sums.run(lds, in, block.from, block.to);
  const auto result = block.result(arg, out);
  const pf_conv_turned<decltype(block.result(arg, out))> turned = {result};
  sums.store(lds, block.left, block.first, block.columns, block.rows, turned);
}

#endif
