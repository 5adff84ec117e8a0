/* What multiplies the panels of pf_mma_async.h: mma.sync with fragments by ldmatrix, and Hopper's wgmma, which reads LDS
 * itself.
 *
 * Both leave a wave with sums as pf_mma_nvidia.h describes them: wave w of a warpgroup has rows 16 w .. of wgmma's 64.
 */
#ifndef PF_MMA_PANELS_H
#define PF_MMA_PANELS_H
#include "pf_wgmma.h"

/* ---- mma.sync --------------------------------------------------------------------------------------------------- */

template <class K> struct pf_panels_sync {
  typedef typename K::mma mma;
  enum { LATE = 0 };
  int top, left, layer;
  PF_MEMBER void begin(int row, int column, int of) { top = row, left = column, layer = of; }

  /* Half q of a chunk of 16 lines; lines that lie across are turned as they are read. An instruction gives four neighbouring
   * registers, which mma.sync takes together of the left operand, and two by two of the right one: LEFT. */
  template <int LINES, int ALONG_K, int LEFT>
  PF_FN void load(typename mma::left &to, const pf_piece *of, int line, int chunk, int q) {
    typedef pf_panels<K, LINES, ALONG_K> panels;
    const int lane = pf_lane_of_wave(), row = lane % 8, low = lane / 8 % 2, high = lane / 16;
    const int first = line + (LEFT ? low : high) * 8, k = (chunk * 4 + q * 2 + (LEFT ? high : low)) * (int)panels::EACH;
    const int number = ALONG_K ? panels::piece(first + row, k) : panels::piece(first, k + row);
    const uint32_t at = pf_lds_address(of + panels::place(number));
    uint32_t &x = to.at[0].at[2 * q], &y = to.at[LEFT].at[2 * q + !LEFT], &z = to.at[!LEFT].at[2 * q + LEFT],
             &w = to.at[1].at[2 * q + 1];
    if (ALONG_K)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                   : "r"(at));
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                   : "r"(at));
  }
  template <int DOWN, int ACROSS>
  PF_MEMBER void load(typename mma::left (&rows)[DOWN], typename mma::right (&columns)[ACROSS], const pf_piece *step,
                      int turn) const {
    const pf_piece *b = step + pf_panels<K, K::ROWS, K::A_ALONG_K>::PARTS;
    const int chunk = turn / 2 * K::WAVES_DEEP + layer, q = turn % 2;
    PF_UNROLL
    for (int j = 0; j < ACROSS; j++) load<K::COLS, K::B_ALONG_K, 0>(columns[j], b, left + j * PF_MMA_EDGE, chunk, q);
    PF_UNROLL
    for (int i = 0; i < DOWN; i++) load<K::ROWS, K::A_ALONG_K, 1>(rows[i], step, top + i * PF_MMA_EDGE, chunk, q);
  }
  /* While one half of a chunk is multiplied the other one comes. */
  template <int DOWN, int ACROSS, class Between>
  PF_MEMBER void multiply(typename mma::sums (&at)[DOWN][ACROSS], const pf_piece *step, const Between &between) const {
    between();
    enum { TURNS = 2 * K::CHUNKS / K::WAVES_DEEP };
    typename mma::left rows[DOWN];
    typename mma::right columns[ACROSS];
    load(rows, columns, step, 0);
    PF_UNROLL
    for (int turn = 0; turn < TURNS; turn++) {
      if (turn + 1 < TURNS) load(rows, columns, step, turn + 1);
      PF_UNROLL
      for (int i = 0; i < DOWN; i++) {
        PF_UNROLL
        for (int j = 0; j < ACROSS; j++) {
          mma::instruction::call(at[i][j].at, rows[i], columns[j].at[0], turn % 2);
          mma::instruction::call(at[i][j].at + 4, rows[i], columns[j].at[1], turn % 2);
        }
      }
    }
  }
  PF_FN void publish() {}
  template <int N> PF_FN void wait() {}
};

/* ---- wgmma ------------------------------------------------------------------------------------------------------ */

template <class K> struct pf_panels_wgmma {
  typedef typename K::mma mma;
  /* With few steps in LDS products of one are awaited at once: blocks beside it keep the matrix units busy. */
  enum { LATE = K::STAGES > 3, SLICE = 16, HIGH = 64, LINE = 128 };
  int group, layer;
  /* Which 64 rows. By a shuffle the compiler knows that all lanes have the same; inside of the loop it would stop wgmma. */
  PF_MEMBER void begin(int row, int, int of) { group = pf_shuffle(row / HIGH, 0), layer = pf_shuffle(of, 0); }

  /* From a slice of k to the next, in the same units. */
  template <int LINES, int ALONG_K> PF_FN int slice_at(int slice) {
    return pf_panels<K, LINES, ALONG_K>::piece(0, slice * SLICE);
  }
  template <int ACROSS, class Between>
  PF_MEMBER void multiply(typename mma::sums (&at)[1][ACROSS], const pf_piece *step, const Between &between) const {
    const uint64_t a = pf_wgmma_place<64>(step + group * (HIGH * LINE / PF_MMA_PIECE)); /* along k and across */
    const uint64_t b = pf_wgmma_place<64>(step + pf_panels<K, K::ROWS, K::A_ALONG_K>::PARTS);
    pf_wgmma_begin();
    enum { TURNS = pf_panels<K, K::ROWS, 1>::DEPTH / SLICE / K::WAVES_DEEP };
    PF_UNROLL
    for (int turn = 0; turn < TURNS; turn++) {
      const int slice = K::WAVES_DEEP > 1 ? layer * TURNS + turn : turn;
      pf_wgmma<mma, ACROSS>::template call<!K::A_ALONG_K, !K::B_ALONG_K, 1>(
          at[0], a + slice_at<K::ROWS, K::A_ALONG_K>(slice), b + slice_at<K::COLS, K::B_ALONG_K>(slice));
      if (turn == 0) between();
    }
    pf_wgmma_end();
  }
  PF_FN void publish() { pf_wgmma_publish(); }
  template <int N> PF_FN void wait() { pf_wgmma_wait<N * LATE>(); }
};

template <class K, int WGMMA> struct pf_panels_choice : pf_panels_sync<K> {};
template <class K> struct pf_panels_choice<K, 1> : pf_panels_wgmma<K> {};
template <class K> struct pf_panels_by : pf_panels_choice<K, K::WGMMA> {
  /* Two sums of a lane are neighbours. */
  PF_FN void put(float *to, int pitch, const typename K::mma::sums &sums) {
    PF_UNROLL
    for (int s = 0; s < K::mma::SUMS; s += 2) {
      const pf_vector<float, 2> two = {{sums.at[s], sums.at[s + 1]}};
      *(pf_vector<float, 2> *)(to + K::mma::row(s) * pitch + K::mma::col(s)) = two;
    }
  }
};

#endif
