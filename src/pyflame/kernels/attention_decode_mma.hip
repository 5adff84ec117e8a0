/* attention_decode.hip on matrix tiles (pf_mma.h), for several rows of 16-bit numbers that share their keys: by single
 * numbers arithmetic would be the limit, 2 ROWS flops a number.
 *
 * A block has up to 16 rows, as lines in LDS; each of its WAVES takes 32 keys of its own at a time, a turn. Lanes read
 * whole pieces of 16 bytes, those that the tiles want of them:
 *   keys    along the depth, as they lie
 *   values  tiles want them along the keys. A lane reads 8 numbers of 8 keys and turns that square in registers: its
 *           number i is a piece of tile i, so a tile has every eighth column of 128
 * On NVIDIA STAGES turns of a wave are on their way to LDS by asynchronous copies, of whole lines; where a piece goes is
 * turned by its line so that eight lanes' reads fall on all banks. Elsewhere lanes read straight into registers (STAGES
 * of 0).
 *
 * Waves meet in LDS, blocks in scratch. A turn is 64 (D + E) bytes and 2 * 32 * 16 (D + E) flops, whatever ROWS there are.
 */
#ifndef PF_ATTENTION_DECODE_MMA_HIP
#define PF_ATTENTION_DECODE_MMA_HIP
#include "attention_decode.hip"
#include "attention_mma.hip"
#if defined(__CUDACC__) || defined(PF_EMULATE)
#include "pf_mma_async.h"
#else /* never called, without stages */
#define PF_DYNAMIC_LDS(T, name, count) PF_SHARED T name[count]
PF_FN void pf_copy_async(pf_piece *to, const void *from, int has);
PF_FN void pf_copies_end();
template <int N> PF_FN void pf_copies_wait();
#endif

/* The low halves of two words, or the high ones. */
PF_FN uint32_t pf_halves(uint32_t a, uint32_t b, int high) {
#if defined(__CUDACC__)
  return __byte_perm(a, b, high ? 0x7632 : 0x5410);
#elif defined(PF_EMULATE)
  return high ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
#else
  return __builtin_amdgcn_perm(b, a, high ? 0x07060302 : 0x05040100);
#endif
}

/* DEPTH in chunks, WIDTH in halves of such squares. ROWS: of 16, those that there may be. STAGES ask for VECTOR,
 * lines of whole chunks, and strides below 2^31. */
template <class E, class T, int DEPTH, int WIDTH, int ROWS_, int WAVES_, int STAGES, int VECTOR_, int MASK, int CAP>
struct pf_few_mma {
  typedef typename E::stored S;
  typedef pf_piece unit; /* of LDS */
  typedef pf_own<T> O;
  typedef pf_attending<pf_attention_of<E, T, DEPTH, DEPTH, (WIDTH + 1) / 2 * 8, 1, 1, 32, 0, VECTOR_, PF_MIX, 0, MASK, CAP, 0>> A;
  typedef typename A::other other;
  enum {
    ROWS = ROWS_,
    VECTOR = VECTOR_,
    WAVES = WAVES_,
    THREADS = WAVES * PF_WAVE,
    CLUSTER = 1,
    TOGETHER = 0,
    KEYS = 32,
    STEP = WAVES * KEYS,
    PART = STEP,
    PARTS = DEPTH * T::STEPS,
    SQUARES = (WIDTH + 1) / 2,
    LINE = SQUARES * 128,
    KNOWN = 0,
    LONG = DEPTH * PF_MMA_PIECES, /* pieces of a key, and of a value */
    WIDE = WIDTH * 8,
    TURN = KEYS * (LONG + WIDE),
    QUERIES = 16 * LONG, /* pieces of LDS */
    RING = STAGES * TURN, /* of a wave */
    MET = WAVES * ROWS * (LINE + 2) / 4 + 1,
    LDS = QUERIES + WAVES * RING > MET ? QUERIES + WAVES * RING : MET,
  };

  /* 32 keys from `left` on, and where a lane has its pieces of them. Pages are looked up once for all lanes: `found`. */
  template <class L> struct turn {
    const L &lines;
    int left, end, found;
    pf_pieces pieces; /* with stages, instead */
    pf_piece *stage;

    PF_MEMBER auto place(int n) const {
      if constexpr (L::PAGED)
        return lines.unpack(pf_shuffle(found, n), left + n < end);
      else
        return left + n;
    }
    /* Pieces in LDS. Eight lanes read four pieces of two lines at a time; of values, two of every second line. */
    PF_FN int key_place(int n, int piece) { return n * LONG + (LONG % 8 ? piece : piece ^ (n & 1) << 2); }
    PF_FN int value_place(int n, int piece) { return KEYS * LONG + n * WIDE + (piece % WIDE ^ (n >> 1 & 3) << 1); }
    PF_MEMBER void ask(int any) const {
      if constexpr (STAGES > 0) {
        pf_wave_sync(); /* others have read what lay there */
        if (any) {
          _Pragma("unroll 8")
          for (int i = 0; i < KEYS * LONG / PF_WAVE; i++) {
            const int number = i * PF_WAVE + pf_lane_of_wave(), n = number / LONG, piece = number % LONG;
            pf_copy_async(stage + key_place(n, piece), &pf_piece_at(lines.keys, pf_shuffle(pieces.key, n) + piece), 1);
          }
          _Pragma("unroll 8")
          for (int i = 0; i < KEYS * WIDE / PF_WAVE; i++) {
            const int number = i * PF_WAVE + pf_lane_of_wave(), n = number / WIDE, piece = number % WIDE;
            pf_copy_async(stage + value_place(n, piece), &pf_piece_at(lines.values, pf_shuffle(pieces.value, n) + piece),
                          8 * piece < lines.values.depth);
          }
        }
        pf_copies_end();
      }
    }
    /* Part `part` of tile j's keys, of which a lane has some pieces. */
    PF_MEMBER void take_key(other &to, int j, int part) const {
      PF_UNROLL
      for (int slot = 0; slot < T::SLOTS; slot++) {
        const int n = j * 16 + T::line(slot), piece = part / T::STEPS * PF_MMA_PIECES + T::piece(slot, part % T::STEPS);
        if constexpr (STAGES > 0)
          T::put(to, slot, stage[key_place(n, piece)], part % T::STEPS);
        else
          T::put(to, slot, lines.key(place(n), 8 * piece), part % T::STEPS);
      }
    }
    PF_MEMBER void multiply_keys(A &own, const pf_piece *queries) const {
      T::clear(own.scores[0][0]), T::clear(own.scores[0][1]);
      if constexpr (STAGES > 0) {
        PF_UNROLL
        for (int part = 0; part < PARTS; part++) {
          typename A::own rows;
          T::load(rows, queries + part / T::STEPS * 16 * PF_MMA_PIECES, part % T::STEPS);
          PF_UNROLL
          for (int j = 0; j < 2; j++) {
            other key;
            take_key(key, j, part);
            A::multiply(own.scores[0][j], rows, key);
          }
        }
      } else {
        PF_UNROLL
        for (int j = 0; j < 2; j++) { /* all reads of a tile are on their way at once, those of both have no registers */
          other keys[PARTS];
          PF_UNROLL
          for (int part = 0; part < PARTS; part++) take_key(keys[part], j, part);
          PF_UNROLL
          for (int part = 0; part < PARTS; part++) {
            typename A::own rows;
            T::load(rows, queries + part / T::STEPS * 16 * PF_MMA_PIECES, part % T::STEPS);
            A::multiply(own.scores[0][j], rows, keys[part]);
          }
          PF_IN_ORDER
        }
      }
    }
    PF_MEMBER void mix_values(A &own, int square, int step) const {
      pf_words values[T::SLOTS][8];
      PF_UNROLL
      for (int s = 0; s < T::SLOTS * 8; s++) {
        const int slot = s / 8, e = s % 8, n = O::number(T::piece(slot, step), e), piece = square * 16 + T::line(slot);
        if constexpr (STAGES > 0)
          values[slot][e] = stage[value_place(n, piece)];
        else
          values[slot][e] = lines.value(place(n), 8 * piece);
      }
      typename A::own weights;
      O::template take<E>(weights, own.scores[0][0], own.scores[0][1], step);
      PF_UNROLL
      for (int i = 0; i < 8; i++) {
        other columns;
        PF_UNROLL
        for (int slot = 0; slot < T::SLOTS; slot++) {
          pf_piece turned;
          PF_UNROLL
          for (int w = 0; w < 4; w++)
            turned.at[w] = pf_halves(values[slot][2 * w].at[i / 2], values[slot][2 * w + 1].at[i / 2], i % 2);
          T::put(columns, slot, turned, step);
        }
        A::multiply(own.result[0][square * 8 + i], weights, columns);
      }
    }
  };

  PF_FN pf_piece *behind(pf_piece *stage, pf_piece *ring) {
    return stage + TURN == ring + RING ? ring : stage + TURN;
  }

  /* The rows of a block as lines in LDS. */
  PF_FN void put_queries(pf_piece *lds, const S *q, const pf_few_place &at, pf_late_args arg) {
    const int queries = (int)arg[PF_ATT_ROWS], share = (int)arg[PF_ATT_SHARED], depth = (int)arg[PF_ATT_DEPTH];
    for (int n = pf_thread(); n < QUERIES; n += THREADS) {
      const int p = n % PF_MMA_PIECES, r = n / PF_MMA_PIECES % 16, chunk = n / (PF_MMA_PIECES * 16);
      const int row = pf_least(at.first + r, share * queries - 1), head = at.shared * share + row / queries;
      const pf_matrix<S> from = pf_matrix_of(q, arg + PF_ATT_A, at.batch, head, queries, depth);
      lds[chunk * 16 * PF_MMA_PIECES + pf_mma_place(r, p)] =
          pf_read_words<VECTOR>(from, row % queries, 8 * (chunk * PF_MMA_PIECES + p));
    }
  }

  /* What a wave has goes to LDS, where all meet. */
  PF_FN void hand_over(A &own, float *lds) {
    float *const to = lds + pf_thread() / PF_WAVE * ROWS * (LINE + 2);
    PF_UNROLL
    for (int r = 0; r < O::LINES; r++) {
      PF_UNROLL
      for (int w = O::FROM; w < O::TO; w *= 2) own.total[0][r] += pf_shuffle_xor(own.total[0][r], w);
      if (O::shift() || O::line(r) >= ROWS) continue;
      to[O::line(r) * (LINE + 2)] = own.top[0][r], to[O::line(r) * (LINE + 2) + 1] = own.total[0][r];
    }
    PF_UNROLL
    for (int n = 0; n < SQUARES * 8 * T::SUMS; n++) {
      const int j = n / T::SUMS, s = n % T::SUMS, row = O::line(O::slot(s));
      const int column = (j / 8 * 16 + O::fixed(s) + O::shift()) * 8 + j % 8;
      if (row < ROWS) to[row * (LINE + 2) + 2 + column] = T::get(own.result[0][j], s);
    }
  }

  template <class L, class M>
  PF_FN void attend(const S *q, const L &lines, const pf_few_place &at, const M *mask, const float *sinks, pf_piece *lds,
                    char *scratch, S *out, pf_late_args arg) {
    const int queries = (int)arg[PF_ATT_ROWS], share = (int)arg[PF_ATT_SHARED], wave = pf_thread() / PF_WAVE;
    const float scale = pf_from_bits_f32((uint32_t)arg[PF_ATT_SCALE]), cap = pf_from_bits_f32((uint32_t)arg[PF_ATT_CAP]);
    const float two = 1.44269504f; /* weights are powers of 2 */
    pf_piece *const ring = lds + QUERIES + wave * RING;
    turn<L> next = {lines, at.begin + wave * KEYS, at.end, 0, {0, 0}, ring}; /* that is asked for next */
    const auto any = [&]() { return next.left - wave * KEYS < at.end; }; /* waves beyond the end go along, for the last key */
    const auto find = [&]() {
      const int key = next.left + pf_lane_of_wave() % KEYS;
      if (STAGES && any())
        next.pieces = lines.pieces(lines.find(pf_least(key, at.end - 1)));
      if constexpr (L::PAGED && STAGES == 0) next.found = any() ? lines.pack(key) : 0;
    };
    const auto advance = [&]() {
      next.left += STEP;
      if (STAGES) next.stage = behind(next.stage, ring);
      find();
    };
    find();
    _Pragma("unroll 1")
    for (int s = 0; s < STAGES; s++) next.ask(any()), advance();
    put_queries(lds, q, at, arg);
    A own;
    int least[O::LINES], most[O::LINES]; /* keys that a row sees */
    const M *masked[O::LINES];
    PF_UNROLL
    for (int r = 0; r < O::LINES; r++) {
      const int row = pf_least(at.first + O::line(r), share * queries - 1), head = at.shared * share + row / queries;
      least[r] = row % queries + at.low, most[r] = pf_least(at.end - 1, row % queries + at.high);
      masked[r] = MASK ? pf_head(mask, arg + PF_ATT_MASK, at.batch, head, row % queries) : mask;
      own.top[0][r] = -PF_INF, own.total[0][r] = 0.0f;
      if (!sinks || at.split || wave) continue;
      own.top[0][r] = sinks[head * arg[PF_PAGE_SINKS]] * two;
      own.total[0][r] = O::shift() == 0; /* lanes' sums of a row are added up in the end */
    }
    PF_UNROLL
    for (int j = 0; j < SQUARES * 8; j++) T::clear(own.result[0][j]);
    pf_barrier();
    for (int first = at.begin; first < at.end; first += STEP) {
      const int left = first + wave * KEYS;
      const turn<L> now = {lines, left, at.end, next.found, next.pieces, next.stage};
      if constexpr (STAGES > 0) {
        pf_copies_wait<STAGES - 1>();
        pf_wave_sync();
      } else {
        advance();
      }
      now.multiply_keys(own, lds);
      const int from = left + O::shift();
      A::each([&](int i, int j, int s, int r, int n) {
        const int key = from + n;
        float x = T::get(own.scores[0][j], s) * (CAP ? scale / cap : scale * two);
        if (CAP) x = pf_bend(x) * (cap * two);
        int seen = key >= least[r] && key <= most[r];
        if (MASK && seen) {
          const M given = masked[r][key * arg[PF_ATT_MASK + 3]];
          if (MASK == 1)
            seen = given != 0;
          else
            x += given * two;
        }
        O::set(own.scores[0][j], s, seen ? x : -PF_INF);
      });
      own.grow();
      PF_UNROLL
      for (int n = 0; n < SQUARES * T::STEPS; n++) {
        now.mix_values(own, n / T::STEPS, n % T::STEPS);
        PF_IN_ORDER
      }
      if (STAGES) next.ask(any()), advance();
    }
    pf_barrier();
    hand_over(own, (float *)lds);
    pf_barrier();
    pf_few_store<E, pf_few_mma>((float *)lds, at, scratch, out, arg);
  }
};

template <class E, class T, int DEPTH, int WIDTH, int ROWS, int WAVES, int STAGES, int VECTOR, int MASK, int CAP, int SPANS, class M>
PF_FN void pf_attend_few_mma(const typename E::stored *q, const typename E::stored *k, const typename E::stored *v,
                             const M *mask, char *scratch, typename E::stored *out, pf_late_args arg,
                             const int *spans = 0) {
  typedef pf_few_mma<E, T, DEPTH, WIDTH, ROWS, WAVES, STAGES, VECTOR, MASK, CAP> few;
  PF_DYNAMIC_LDS(pf_piece, lds, few::LDS);
  pf_few_whole<few, SPANS>(q, k, v, mask, lds, scratch, out, arg, spans);
}
template <class E, class T, int DEPTH, int WIDTH, int ROWS, int WAVES, int STAGES, int VECTOR, int CAP, int EARLY>
PF_FN void pf_attend_pages_mma(const typename E::stored *q, const typename E::stored *k, const typename E::stored *v,
                               const int *table, const int *lengths, const float *sinks, char *scratch,
                               typename E::stored *out, int64_t *err, pf_late_args arg) {
  typedef pf_few_mma<E, T, DEPTH, WIDTH, ROWS, WAVES, STAGES, VECTOR, 0, CAP> few;
  PF_DYNAMIC_LDS(pf_piece, lds, few::LDS);
  pf_few_paged<few, EARLY, pf_page_scale<pf_of<float>, 0>>(q, k, v, table, lengths, (const float *)0, (const float *)0, sinks, lds,
                                                    scratch, out, err, arg);
}

#endif
