/* A block's tile of sums over matrix tiles (pf_mma.h): waves of DOWN x ACROSS tiles of 16x16 each, operands through LDS.
 *
 * A kernel's struct K says ROWS, COLS (of the block), THREADS, WAVES_ACROSS (of its waves, the others lie below), CHUNKS
 * (of 64 bytes along k in a step), OUT_WIDTH (results that are handed over at once) and the type of its tiles, K::mma. K::lds makes what lies in LDS of a number in
 * memory; AS_IS: that is the same.
 *
 * Memory policy. pf_steps (pf_tile.h): a step is multiplied from one half of LDS while the next one is on its way from
 * memory to registers, 16 bytes at a time where operands are contiguous along k. An operand that is contiguous across
 * lines is read there 4 (of 8-byte numbers 2) lines at a time and turned in registers, four by four; lanes then write to LDS
 * side by side. A block of 128x128 and 16-bit numbers takes 16 KB a step from memory for 1 Mflop (64 flops a byte, from
 * L2 mostly), 32 KB of LDS, and 64 of a lane's registers for sums, 32 for fragments, 16 for what is on its way.
 *
 * Results. A wave writes 16 rows of its sums to LDS and reads them along rows (or columns, where rows lie side by side in
 * the result), OUT_WIDTH at a time: neighbouring lanes hand over neighbouring vectors, whatever the instruction's layout,
 * positions are worked out once for each vector, and the epilogue stands in the code DOWN times, not once for each sum.
 *
 * Another main loop (for instructions that read operands from LDS themselves) is another struct with run and store.
 */
#ifndef PF_MMA_LOOP_H
#define PF_MMA_LOOP_H
#include "pf_mma.h"
#include "pf_strips.h"

/* Pieces from a chunk of both operands to the next, which begins half the banks further on: lanes write both together. */
template <class K> struct pf_mma_chunk {
  enum { PIECES = (K::ROWS + K::COLS + (K::CHUNKS > 1)) * PF_MMA_PIECES };
};

/* Which numbers of a step a thread fetches: whole pieces along k, or squares of SIDE numbers that `put` turns. */
template <class K, int LINES, int ALONG_K> struct pf_mma_map {
  typedef typename K::mma::element element;
  enum {
    PIECE = PF_MMA_PIECE / (int)sizeof(element),
    DEPTH = K::CHUNKS * PF_MMA_CHUNK / (int)sizeof(element),
    SIDE = sizeof(element) == 8 ? 2 : 4,
    WIDTH = ALONG_K ? PIECE : SIDE,
    ROUNDS = ALONG_K ? 1 : SIDE, /* vectors of one line, or of one square */
    PARTS = LINES * DEPTH / (WIDTH * ROUNDS),
    TURNS = (PARTS + K::THREADS - 1) / K::THREADS,
    COUNT = TURNS * ROUNDS,
    SAME = ROUNDS, /* vectors, one after the other, of the same lines */
    WHOLE = PARTS % K::THREADS == 0,
    FAST = DEPTH / WIDTH, /* parts along k */
  };
  PF_FN int part(int s) { return pf_thread() + s / ROUNDS * K::THREADS; }
  PF_FN int has(int s) { return WHOLE || part(s) < PARTS; }
  PF_FN int line_of(int s) { return part(s) / FAST * (ALONG_K ? 1 : SIDE); }
  PF_FN int k_of(int s) { return part(s) % FAST * WIDTH + s % ROUNDS; }
};

/* One operand's share of a step: `Strips` fetches it. */
template <class K, int LINES, int ALONG_K, int VECTOR,
          class Strips = pf_strips<K, pf_mma_map<K, LINES, ALONG_K>, ALONG_K, VECTOR>>
struct pf_mma_lines : Strips {
  typedef pf_mma_map<K, LINES, ALONG_K> map;
  typedef typename map::element element;

  /* `to`: where the first line of the first chunk lies. */
  PF_MEMBER void put(pf_piece *to) const {
    enum { CHUNK = PF_MMA_CHUNK / (int)sizeof(element) };
    PF_UNROLL
    for (int s = 0; s < map::COUNT; s += map::ROUNDS) {
      if (!map::has(s)) continue;
      const int k = map::k_of(s), line = map::line_of(s), piece = k % CHUNK / map::PIECE;
      PF_UNROLL
      for (int i = 0; i < map::ROUNDS; i++) {
        pf_piece *at = to + k / CHUNK * pf_mma_chunk<K>::PIECES + pf_mma_place(line + i, piece);
        if constexpr (ALONG_K && K::AS_IS) {
          *at = this->whole(s);
        } else {
          pf_vector<element, map::WIDTH> row;
          PF_UNROLL
          for (int e = 0; e < map::WIDTH; e++)
            row.at[e] = K::lds(ALONG_K ? this->number(s, e) : this->number(s + e, i));
          *(pf_vector<element, map::WIDTH> *)((element *)at + k % map::PIECE) = row;
        }
      }
    }
  }
};

template <class K> struct pf_mma_loop {
  typedef typename K::mma mma;
  typedef typename mma::sum sum;
  enum {
    WAVES_DOWN = K::THREADS / PF_WAVE / K::WAVES_ACROSS,
    HIGH = K::ROWS / WAVES_DOWN, /* of a wave */
    WIDE = K::COLS / K::WAVES_ACROSS,
    DOWN = HIGH / PF_MMA_EDGE,
    ACROSS = WIDE / PF_MMA_EDGE,
    DEPTH = pf_mma_map<K, K::ROWS, 1>::DEPTH,
    CHUNK_PIECES = pf_mma_chunk<K>::PIECES,
    STEP_PIECES = K::CHUNKS * CHUNK_PIECES,
    B_AT = K::ROWS * PF_MMA_PIECES,
    PAD = PF_MMA_PIECE / (int)sizeof(sum), /* of a line of results in LDS, which is a row or a column */
    WAVE_PIECES = WIDE * (PF_MMA_EDGE + PAD) * (int)sizeof(sum) / PF_MMA_PIECE, /* columns: WIDE is 16 at least */
    ALL_PIECES = WAVE_PIECES * (K::THREADS / PF_WAVE),
    LDS_PIECES = 2 * STEP_PIECES > ALL_PIECES ? 2 * STEP_PIECES : ALL_PIECES,
  };
  typename mma::sums at[DOWN][ACROSS];

  PF_FN int wave() { return pf_thread() / PF_WAVE; }
  PF_FN int top() { return wave() / K::WAVES_ACROSS * HIGH; }
  PF_FN int left() { return wave() % K::WAVES_ACROSS * WIDE; }

  template <class In> PF_MEMBER void put(const In &in, pf_piece *to) const { in.put(to); }

  PF_MEMBER void multiply(const pf_piece *step) {
    const pf_piece *a = step + top() * PF_MMA_PIECES, *b = step + B_AT + left() * PF_MMA_PIECES;
    _Pragma("unroll(mma::TOGETHER)")
    for (int part = 0; part < K::CHUNKS * mma::STEPS; part++) {
      const int chunk = part / mma::STEPS * CHUNK_PIECES;
      typename mma::right columns[ACROSS];
      PF_UNROLL
      for (int j = 0; j < ACROSS; j++)
        mma::load(columns[j], b + chunk + j * PF_MMA_EDGE * PF_MMA_PIECES, part % mma::STEPS);
      PF_UNROLL
      for (int i = 0; i < DOWN; i++) {
        typename mma::left rows;
        mma::load(rows, a + chunk + i * PF_MMA_EDGE * PF_MMA_PIECES, part % mma::STEPS);
        PF_UNROLL
        for (int j = 0; j < ACROSS; j++) mma::multiply(at[i][j], rows, columns[j]);
      }
    }
  }

  /* The sums over k in [k, end). `lds`: LDS_PIECES. */
  template <class In> PF_MEMBER void run(pf_piece *lds, In &in, int k, int end) {
    PF_UNROLL
    for (int i = 0; i < DOWN; i++) {
      PF_UNROLL
      for (int j = 0; j < ACROSS; j++) mma::clear(at[i][j]);
    }
    pf_steps<DEPTH, STEP_PIECES>(lds, in, *this, k, end);
  }

  /* Hand over what lies inside of m x n, for a block whose tile begins at (first, left_most). Neighbouring lanes have
   * neighbouring columns, or with ROWS_FIRST rows; a lane has as many of them as K::OUT_WIDTH says, of which m or n is a
   * multiple. */
  template <int ROWS_FIRST = 0, class Out>
  PF_MEMBER void store(pf_piece *lds, int first, int left_most, int m, int n, const Out &out) const {
    enum {
      FAST = ROWS_FIRST ? PF_MMA_EDGE : WIDE,
      PITCH = FAST + PAD,
      ACROSS_ROOM = FAST / K::OUT_WIDTH, /* vectors */
      VECTORS = PF_MMA_EDGE * WIDE / K::OUT_WIDTH,
      ROUNDS = (VECTORS + PF_WAVE - 1) / PF_WAVE,
    };
    sum *room = (sum *)(lds + wave() * WAVE_PIECES);
    PF_UNROLL
    for (int i = 0; i < DOWN; i++) {
      PF_UNROLL
      for (int j = 0; j < ACROSS; j++) {
        PF_UNROLL
        for (int s = 0; s < mma::SUMS; s++) {
          const int row = mma::row(s), column = j * PF_MMA_EDGE + mma::col(s);
          room[ROWS_FIRST ? column * PITCH + row : row * PITCH + column] = mma::get(at[i][j], s);
        }
      }
      pf_wave_sync();
      PF_UNROLL_FEW
      for (int t = 0; t < ROUNDS; t++) {
        const int e = t * PF_WAVE + pf_lane_of_wave();
        const int slow = e / ACROSS_ROOM, fast = e % ACROSS_ROOM * K::OUT_WIDTH;
        const int y = first + top() + i * PF_MMA_EDGE + (ROWS_FIRST ? fast : slow);
        const int x = left_most + left() + (ROWS_FIRST ? slow : fast);
        if (y < m && x < n && (VECTORS % PF_WAVE == 0 || e < VECTORS)) hand_over(room + slow * PITCH + fast, y, x, out);
      }
      pf_wave_sync();
    }
  }

  template <class Out> PF_FN void hand_over(const sum *from, int y, int x, const Out &out) {
    if constexpr (K::OUT_WIDTH == 1) {
      out(y, x, *from);
    } else {
      enum { EACH = K::OUT_WIDTH < (int)PAD ? (int)K::OUT_WIDTH : (int)PAD };
      typedef pf_vector<sum, EACH> part;
      sum sums[K::OUT_WIDTH];
      PF_UNROLL
      for (int n = 0; n < K::OUT_WIDTH; n += EACH) {
        const part some = *(const part *)(from + n);
        PF_UNROLL
        for (int e = 0; e < EACH; e++) sums[n + e] = some.at[e];
      }
      out.several(y, x, sums);
    }
  }
};

#endif
