/* A block's tile of sums over matrix tiles, its operands copied to LDS by asynchronous copies: NVIDIA's, sm_80 and newer.
 *
 * For numbers of 16 bits that lie in memory in aligned pieces of 16 bytes, along k or across lines; pf_mma_loop.h takes
 * all others. K is as there, and says besides STAGES (steps in LDS), WAVES_DEEP (waves that share a step's k; a layer of
 * the others for each), WGMMA (wgmma multiplies, else mma.sync: pf_mma_panels.h) and CLUSTER (blocks that share a tile's k).
 *
 * Memory policy. A piece goes from memory to LDS without passing registers, and AHEAD steps are on their way while one
 * is multiplied: a step needs one barrier. An operand lies in LDS as in memory, so nothing is turned by hand: lines of
 * 128 bytes, along k (a line of the operand) or across (64 of its lines at one k), in panels of 64 k. The eight pieces
 * of a line are exchanged by its number (place): eight lines' pieces of one number fall on all banks, and wgmma knows the
 * same order as its swizzle of 128 bytes. A block of 128x256 takes 48 KB a step of 64 k for 4 Mflop: 85 flops a byte.
 *
 * Results are handed over along rows, OUT_WIDTH neighbours at once, from registers: four lanes that share a row turn their
 * pairs into neighbours by shuffles (HELD; what takes results has row(y), which takes several(x, sums)). LDS is free
 * meanwhile, so with MANY a block already fetches its next tile; that pays where a compute unit has one block. Where
 * layers or the blocks of a cluster meet, which they do in order, or where numbers are handed over one by one, with TURNED
 * along columns, all sums go to LDS first.
 */
#ifndef PF_MMA_ASYNC_H
#define PF_MMA_ASYNC_H
#include "pf_mma.h"

/* pf_copy_async: a piece from memory, or zeros. pf_copies_end: of a group of a thread's copies. pf_copies_wait<N>: until at
 * most N of its groups are on their way. pf_prefetch: bytes to L2. PF_DYNAMIC_LDS: LDS that the launch brings; a text
 * declares no more than 48 KB.
 * Blocks of a cluster (sm_90 and newer): this one's number, a barrier of all, what another one has at the same place.
 * pf_meeting: eight bytes in LDS, begun by all threads, that wait for pieces which blocks of the cluster send: faster than
 * a barrier, and who has sent may end. */
#if defined(PF_EMULATE)
#define PF_DYNAMIC_LDS(T, name, count) PF_SHARED T name[count]
PF_FN void pf_copy_async(pf_piece *to, const void *from, int has) {
  const pf_piece none = {{0, 0, 0, 0}};
  *to = has ? *(const pf_piece *)from : none;
}
PF_FN void pf_copies_end() {}
template <int N> PF_FN void pf_copies_wait() {}
PF_FN void pf_prefetch(const void *) {}
/* The host has none: each block of one does all of it. */
enum { PF_CLUSTERS = 0 };
PF_FN int pf_cluster_rank() { return 0; }
PF_FN void pf_cluster_sync() {}
PF_FN pf_vector<float, 4> pf_cluster_load(const float *at, int) { return *(const pf_vector<float, 4> *)at; }
PF_FN void pf_meeting_begin(uint64_t *, int) {}
PF_FN void pf_meeting_send(uint64_t *, pf_piece *, int, const pf_piece &) {}
PF_FN void pf_meeting_wait(uint64_t *) {}
#else
#define PF_DYNAMIC_LDS(T, name, count)                     \
  extern __shared__ __align__(1024) char pf_dynamic_lds[]; \
  T *name = (T *)pf_dynamic_lds
PF_FN uint32_t pf_lds_address(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }
PF_FN void pf_copy_async(pf_piece *to, const void *from, int has) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(pf_lds_address(to)), "l"(from), "r"(has ? 16 : 0)
               : "memory");
}
PF_FN void pf_copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
PF_FN void pf_prefetch(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
template <int N> PF_FN void pf_copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
enum { PF_CLUSTERS = 1 };
PF_FN int pf_cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
PF_FN void pf_cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
PF_FN pf_vector<float, 4> pf_cluster_load(const float *at, int rank) {
  pf_vector<float, 4> x;
  asm volatile("{ .reg .u32 there; mapa.shared::cluster.u32 there, %4, %5; ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
               : "=f"(x.at[0]), "=f"(x.at[1]), "=f"(x.at[2]), "=f"(x.at[3])
               : "r"(pf_lds_address(at)), "r"(rank));
  return x;
}
PF_FN void pf_meeting_begin(uint64_t *at, int pieces) {
  if (pf_thread() == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(pf_lds_address(at)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  pf_cluster_sync();
  if (pf_thread() == 0)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(pf_lds_address(at)), "r"(16 * pieces)
                 : "memory");
}
PF_FN void pf_meeting_send(uint64_t *at, pf_piece *to, int rank, const pf_piece &x) {
  asm volatile(
      "{ .reg .u32 there, meeting; mapa.shared::cluster.u32 there, %0, %2; mapa.shared::cluster.u32 meeting, %1, %2;"
      " st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [there], {%3, %4, %5, %6}, [meeting]; }" ::"r"(
          pf_lds_address(to)),
      "r"(pf_lds_address(at)), "r"(rank), "r"(x.at[0]), "r"(x.at[1]), "r"(x.at[2]), "r"(x.at[3])
      : "memory");
}
PF_FN void pf_meeting_wait(uint64_t *at) {
  asm volatile("{ .reg .pred met; again: mbarrier.try_wait.parity.shared::cta.b64 met, [%0], 0; @!met bra again; }" ::"r"(
                   pf_lds_address(at))
               : "memory");
}
#endif

/* How a step of LINES lines lies in LDS: pieces numbered as they lie in memory, panel by panel. */
template <class K, int LINES, int ALONG_K> struct pf_panels {
  typedef typename K::stored stored;
  enum {
    EACH = PF_MMA_PIECE / (int)sizeof(stored),
    PANEL = 8 * EACH, /* k of a panel */
    DEPTH = K::CHUNKS * PF_MMA_CHUNK / (int)sizeof(stored),
    FAST = ALONG_K || LINES >= PANEL ? 8 : LINES / EACH, /* pieces that are neighbours in memory */
    GROUPS = LINES / (FAST * EACH),                      /* across: of lines that lie in one */
    PARTS = LINES * DEPTH / EACH,
  };
  PF_FN int place(int number) { return number ^ (number >> 3 & 7); }
  /* The piece of the number at (line, k). */
  PF_FN int piece(int line, int k) {
    if (ALONG_K) return (k / PANEL * LINES + line) * FAST + k % PANEL / EACH;
    return ((k / PANEL * GROUPS + line / EACH / FAST) * PANEL + k % PANEL) * FAST + line / EACH % FAST;
  }
  PF_FN int line_of(int number) {
    const int row = number / FAST;
    return ALONG_K ? row % LINES : row / PANEL % GROUPS * PANEL + number % FAST * EACH;
  }
  PF_FN int k_of(int number) {
    const int row = number / FAST;
    return ALONG_K ? row / LINES * PANEL + number % FAST * EACH : row / PANEL / GROUPS * PANEL + row % PANEL;
  }
};

/* The pieces of one operand that a thread copies; zeros beyond its lines and beyond k. */
template <class K, int LINES, int ALONG_K> struct pf_async_lines : pf_panels<K, LINES, ALONG_K> {
  typedef pf_panels<K, LINES, ALONG_K> panels;
  typedef typename K::stored stored;
  enum {
    COUNT = (panels::PARTS + K::THREADS - 1) / K::THREADS,
    WHOLE = panels::PARTS % K::THREADS == 0,
  };
  const stored *at[COUNT];
  int64_t step;
  uint32_t has; /* a bit for each piece that begins inside of the lines */

  PF_FN int number(int s) { return pf_thread() + s * K::THREADS; }
  PF_MEMBER void begin(const stored *base, int first, int lines, int64_t line_stride, int64_t k_stride, int k) {
    step = panels::DEPTH * k_stride, has = 0;
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      const int line = first + panels::line_of(number(s));
      has |= (uint32_t)(line < lines) << s;
      at[s] = base + line * line_stride + (k + panels::k_of(number(s))) * k_stride;
    }
  }
  /* The next step, of which `rest` k are left. */
  PF_MEMBER void copy(pf_piece *to, int rest) {
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      /* THREADS are a multiple of 64 pieces, after which the order repeats itself. */
      pf_piece *there = to + panels::place(pf_thread()) + s * K::THREADS;
      if (WHOLE || number(s) < panels::PARTS) pf_copy_async(there, at[s], (has >> s & 1) && panels::k_of(number(s)) < rest);
      at[s] += step;
    }
  }
};

/* Both operands of a step; B lies behind A in LDS. `Lines` brings it. */
template <class K, class Lines = pf_async_lines<K, K::COLS, K::B_ALONG_K>> struct pf_async_in {
  enum { PREPARES = 0 };
  pf_async_lines<K, K::ROWS, K::A_ALONG_K> a;
  Lines b;

  PF_MEMBER void prepare(int, int, int) {}
  PF_MEMBER void copy(pf_piece *to, int k, int end, int) {
    copy_a(to, k, end);
    copy_b(to, k, end);
  }
  PF_MEMBER void copy_a(pf_piece *to, int k, int end) { a.copy(to, end - k); }
  PF_MEMBER void copy_b(pf_piece *to, int k, int end) { b.copy(to + pf_panels<K, K::ROWS, K::A_ALONG_K>::PARTS, end - k); }
};

/* The sums of a lane, as pf_mma_nvidia.h describes them: of each row four lanes have the columns, two and two. */
struct pf_quad {
  PF_FN int lane() { return pf_lane_of_wave() % 4; }
  PF_FN int line() { return pf_lane_of_wave() / 4; }
  PF_FN int row(int s) { return line() + s % 4 / 2 * 8; }
  PF_FN int col(int s) { return lane() * 2 + s % 2 + s / 4 * 8; }
  /* Lane t has pair t of eight neighbours four times, and gets all of the t-th eight. */
  template <class S> PF_FN void turn(pf_vector<S, 2> (&pairs)[4]) {
    PF_UNROLL
    for (int by = 1; by < 4; by *= 2) {
      const int high = lane() & by;
      PF_UNROLL
      for (int n = 0; n < 4; n++)
        if (!(n & by)) {
          const pf_vector<S, 2> mine = high ? pairs[n] : pairs[n | by];
          const pf_vector<S, 2> other = {{pf_shuffle_xor(mine.at[0], by), pf_shuffle_xor(mine.at[1], by)}};
          pairs[n] = high ? other : pairs[n];
          pairs[n | by] = high ? pairs[n | by] : other;
        }
    }
  }
};

/* What multiplies: begin(a wave's first row and column, its layer), then multiply(sums, step in LDS, what to do between two
 * instructions). LATE: a step is still read when that returns, until wait<N> has waited for all but the last N. publish() comes between the end of copies and
 * the barrier after which they are multiplied. put(to, pitch, sums): those of a 16x16 as rows. */
#if defined(PF_EMULATE)
/* Tests on the host: the numbers where instructions find them. */
template <class K> struct pf_panels_plain {
  enum { LATE = K::WGMMA && K::STAGES > 3, CHUNK = PF_MMA_CHUNK / (int)sizeof(typename K::stored) };
  int top, left, layer;
  PF_MEMBER void begin(int row, int column, int of) { top = row, left = column, layer = of; }
  template <int LINES, int ALONG_K> PF_FN typename K::sum number(const pf_piece *of, int line, int k) {
    typedef pf_panels<K, LINES, ALONG_K> panels;
    const typename K::stored *piece = (const typename K::stored *)(of + panels::place(panels::piece(line, k)));
    return K::load(piece[(ALONG_K ? k : line) % panels::EACH]);
  }
  template <int DOWN, int ACROSS, class S, class Between>
  PF_MEMBER void multiply(S (&at)[DOWN][ACROSS], const pf_piece *step, const Between &between) const {
    between();
    enum { SUMS = K::mma::SUMS };
    const pf_piece *b = step + pf_panels<K, K::ROWS, K::A_ALONG_K>::PARTS;
    for (int e = 0; e < DOWN * ACROSS * SUMS; e++) {
      const int s = e % SUMS, j = e / SUMS % ACROSS, i = e / SUMS / ACROSS;
      const int row = top + i * PF_MMA_EDGE + pf_quad::row(s), column = left + j * PF_MMA_EDGE + pf_quad::col(s);
      for (int k = 0; k < pf_panels<K, K::ROWS, 1>::DEPTH; k++)
        if (k / CHUNK % K::WAVES_DEEP == layer)
          at[i][j].at[s] = pf_mul_add(number<K::ROWS, K::A_ALONG_K>(step, row, k),
                                      number<K::COLS, K::B_ALONG_K>(b, column, k), at[i][j].at[s]);
    }
  }
  PF_FN void publish() {}
  template <int N> PF_FN void wait() {}
  template <class S> PF_FN void put(typename K::sum *to, int pitch, const S &sums) {
    for (int s = 0; s < K::mma::SUMS; s++) to[pf_quad::row(s) * pitch + pf_quad::col(s)] = sums.at[s];
  }
};
template <class K> struct pf_panels_by : pf_panels_plain<K> {};
#else
#include "pf_mma_panels.h"
#endif

template <class K> struct pf_async_loop {
  typedef typename K::mma mma;
  typedef typename mma::sum sum;
  typedef pf_panels_by<K> by;
  enum {
    LAYER = K::THREADS / PF_WAVE / K::WAVES_DEEP, /* waves of a layer */
    HIGH = K::ROWS * K::WAVES_ACROSS / LAYER,     /* of a wave */
    WIDE = K::COLS / K::WAVES_ACROSS,
    DOWN = HIGH / PF_MMA_EDGE,
    ACROSS = WIDE / PF_MMA_EDGE,
    DEPTH = pf_panels<K, K::ROWS, K::A_ALONG_K>::DEPTH,
    STEP_PIECES = (K::ROWS + K::COLS) * K::CHUNKS * PF_MMA_PIECES,
    PARTS = PF_CLUSTERS ? K::CLUSTER : 1, /* of k, that meet in the end */
    AHEAD = K::STAGES - 1 - by::LATE,
    PITCH = K::COLS + 8, /* of a row of results in LDS */
    RESULT_PIECES = K::WAVES_DEEP * K::ROWS * PITCH * (int)sizeof(sum) / PF_MMA_PIECE,
    LDS_PIECES = K::STAGES * STEP_PIECES > RESULT_PIECES ? K::STAGES * STEP_PIECES : RESULT_PIECES,
    EACH = K::OUT_WIDTH < 4 ? K::OUT_WIDTH : 4, /* results that are read at once */
    TOGETHER = 8, /* neighbours that a lane gets from the others */
    HELD = PARTS * K::WAVES_DEEP == 1 && K::OUT_WIDTH > 1 && TOGETHER % K::OUT_WIDTH == 0 && ACROSS % 2 == 0 && !K::TURNED,
  };
  typename mma::sums at[DOWN][ACROSS];

  PF_FN int layer() { return pf_thread() / PF_WAVE / LAYER; }
  PF_FN int wave() { return pf_thread() / PF_WAVE % LAYER; }
  PF_FN int top() { return wave() / K::WAVES_ACROSS * HIGH; }
  PF_FN int left() { return wave() % K::WAVES_ACROSS * WIDE; }

  /* A block's tiles: `number`, and with MANY every step-th one below `count`, whose first steps come while results of the one
   * before are handed over. `Tiles`: begin(in, number) gives a place, with the k [from, to) of its sums; store(sums, lds, place)
   * hands them over. */
  template <class In, class Tiles>
  PF_MEMBER void run(pf_piece *lds, In &in, const Tiles &tiles, int number, int count, int step) {
    auto place = tiles.begin(in, number);
    begin<K::EARLY>(lds, in, place.from, place.to);
    for (int more = 1; more;) {
      multiply(lds, in, place.from, place.to);
      const auto done = place;
      number += step;
      more = K::MANY && number < count;
      if (more) {
        place = tiles.begin(in, number);
        begin<0>(lds, in, place.from, place.to);
      }
      tiles.store(*this, lds, done);
    }
  }

  /* The first steps of k in [k, end). `lds`: LDS_PIECES. `In` brings steps: prepare(k, end, half) what a later copy needs, as
   * in pf_steps (pf_tile.h), copy(to, k, end, half) a step into LDS. EARLY: no launch before this one writes B, which is
   * asked for while they run. */
  template <int EARLY, class In> PF_MEMBER void begin(pf_piece *lds, In &in, int k, int end) {
    if (In::PREPARES) {
      in.prepare(k, end, 0);
      pf_barrier();
    }
    if constexpr (EARLY) {
      PF_UNROLL
      for (int s = 0; s < AHEAD; s++)
        if (k + s * DEPTH < end) in.copy_b(lds + s * STEP_PIECES, k + s * DEPTH, end);
      pf_await();
    }
    PF_UNROLL
    for (int s = 0; s < AHEAD; s++) {
      if (In::PREPARES) in.prepare(k + (s + 1) * DEPTH, end, (s + 1) % 2);
      if (k + s * DEPTH < end) {
        if constexpr (EARLY)
          in.copy_a(lds + s * STEP_PIECES, k + s * DEPTH, end);
        else
          in.copy(lds + s * STEP_PIECES, k + s * DEPTH, end, s % 2);
      }
      pf_copies_end();
      if (In::PREPARES) pf_barrier();
    }
  }
  /* The sums over all of it. */
  template <class In> PF_MEMBER void multiply(pf_piece *lds, In &in, int k, int end) {
    PF_UNROLL
    for (int i = 0; i < DOWN; i++) {
      PF_UNROLL
      for (int j = 0; j < ACROSS; j++) mma::clear(at[i][j]);
    }
    /* What wgmma multiplies meanwhile is no matter of threads: then they do first what takes long, and fetch behind its first
     * instruction, since they wait for room to give the others. */
    enum { FIRST = by::LATE || (K::WGMMA && In::PREPARES) };
    int here = 0, next = AHEAD, half = AHEAD % 2;
    by work;
    work.begin(top(), left(), layer());
    _Pragma("unroll 1")
    for (; k < end; k += DEPTH) {
      pf_copies_wait<AHEAD - 1>();
      by::publish();
      pf_barrier();
      const auto fetch = [&] {
        if (k + AHEAD * DEPTH < end) in.copy(lds + next * STEP_PIECES, k + AHEAD * DEPTH, end, half);
      };
      if (FIRST)
        work.multiply(at, lds + here * STEP_PIECES, fetch);
      else
        fetch();
      pf_copies_end();
      half ^= 1;
      if (In::PREPARES) in.prepare(k + (AHEAD + 1) * DEPTH, end, half);
      if (!FIRST) work.multiply(at, lds + here * STEP_PIECES, [] {});
      by::template wait<1>();
      here = here + 1 == K::STAGES ? 0 : here + 1;
      next = next + 1 == K::STAGES ? 0 : next + 1;
    }
    by::template wait<0>();
    pf_barrier();
  }

  /* Hand over what lies inside of m x n, for a block whose tile begins at (first, left_most). */
  template <class Out>
  PF_MEMBER void store(pf_piece *lds, int first, int left_most, int m, int n, const Out &out) const {
    if constexpr (HELD)
      store_held(first + top(), left_most + left(), m, n, out);
    else
      store_by_lds(lds, first, left_most, m, n, out);
  }
  /* As they are in registers: four lanes turn pairs of two tiles into neighbours. */
  template <class Out> PF_MEMBER void store_held(int first, int left_most, int m, int n, const Out &out) const {
    PF_UNROLL
    for (int i = 0; i < DOWN * 2; i++) {
      const int y = first + i / 2 * PF_MMA_EDGE + pf_quad::row(i % 2 * 2);
      const auto row = out.row(pf_least(y, m - 1));
      PF_UNROLL
      for (int j = 0; j < ACROSS; j += 2) {
        pf_vector<sum, 2> pairs[4];
        PF_UNROLL
        for (int q = 0; q < 4; q++) {
          const auto &tile = at[i / 2][j + q / 2];
          pairs[q] = {{tile.at[i % 2 * 2 + q % 2 * 4], tile.at[i % 2 * 2 + q % 2 * 4 + 1]}};
        }
        pf_quad::turn(pairs);
        const int x = left_most + j * PF_MMA_EDGE + pf_quad::lane() * TOGETHER;
        PF_UNROLL
        for (int e = 0; e < TOGETHER; e += K::OUT_WIDTH) {
          sum sums[K::OUT_WIDTH];
          PF_UNROLL
          for (int s = 0; s < K::OUT_WIDTH; s++) sums[s] = pairs[(e + s) / 2].at[s % 2];
          if (y < m && x + e < n) row.several(x + e, sums);
        }
      }
    }
  }
  template <class Out>
  PF_MEMBER void store_by_lds(pf_piece *lds, int first, int left_most, int m, int n, const Out &out) const {
    sum *room = (sum *)lds, *mine = room + (layer() * K::ROWS + top()) * PITCH + left();
    PF_UNROLL
    for (int i = 0; i < DOWN; i++) {
      PF_UNROLL
      for (int j = 0; j < ACROSS; j++) by::put(mine + (i * PITCH + j) * PF_MMA_EDGE, PITCH, at[i][j]);
    }
    meet();
    enum { SHARE = K::ROWS / PARTS, FAST = K::COLS / K::OUT_WIDTH, VECTORS = SHARE * FAST, WHOLE = VECTORS % K::THREADS == 0 };
    const int begin = PARTS > 1 ? pf_cluster_rank() * SHARE : 0;
    if (PARTS * K::WAVES_DEEP > 1) add(room + begin * PITCH, SHARE);
    PF_UNROLL_FEW
    for (int t = 0; t < (VECTORS + K::THREADS - 1) / K::THREADS; t++) {
      const int e = t * K::THREADS + pf_thread(), row = begin + (K::TURNED ? e % SHARE : e / FAST);
      const int column = (K::TURNED ? e / SHARE : e % FAST) * K::OUT_WIDTH;
      if ((WHOLE || e < VECTORS) && first + row < m && left_most + column < n)
        hand_over(room + row * PITCH + column, first + row, left_most + column, out);
    }
    if (PARTS > 1) pf_cluster_sync(); /* others read this block's LDS until then */
  }

  PF_FN void meet() {
    if (PARTS > 1)
      pf_cluster_sync();
    else
      pf_barrier();
  }
  template <class Out> PF_FN void hand_over(const sum *from, int y, int x, const Out &out) {
    if constexpr (K::OUT_WIDTH == 1) {
      out(y, x, *from);
    } else {
      sum sums[K::OUT_WIDTH];
      PF_UNROLL
      for (int n = 0; n < K::OUT_WIDTH; n += EACH) {
        const pf_vector<sum, EACH> some = *(const pf_vector<sum, EACH> *)(from + n);
        PF_UNROLL
        for (int e = 0; e < EACH; e++) sums[n + e] = some.at[e];
      }
      out.several(y, x, sums);
    }
  }
  /* What layers and blocks of a cluster have of these rows' sums, to where the first layer has them. */
  PF_FN void add(sum *rows, int count) {
    enum { SOME = 4, FAST = K::COLS / SOME };
    typedef pf_vector<sum, SOME> some;
    PF_UNROLL_FEW
    for (int e = pf_thread(); e < count * FAST; e += K::THREADS) {
      sum *at = rows + e / FAST * PITCH + e % FAST * SOME;
      some total = {};
      PF_UNROLL
      for (int part = 0; part < PARTS * K::WAVES_DEEP; part++) {
        const sum *other = at + part % K::WAVES_DEEP * (K::ROWS * PITCH);
        const some more = PARTS > 1 ? pf_cluster_load(other, part / K::WAVES_DEEP) : *(const some *)other;
        PF_UNROLL
        for (int n = 0; n < SOME; n++) total.at[n] += more.at[n];
      }
      *(some *)at = total;
    }
    pf_barrier();
  }
};

#endif
