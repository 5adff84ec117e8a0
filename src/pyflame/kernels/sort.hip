/* Positions of the first `take` elements of each row in sorted order, on a GPU; all of them: an argsort.
 *
 * Every element becomes a key that sorts as an unsigned number: floats by their bits with the sign folded in, -0 as 0,
 * NaN above everything; integers with the sign bit flipped; for descending order all bits flipped. A key and its position
 * are an item; items are never equal, so the order is stable whatever way they are sorted.
 *
 * Tiles: a block sorts rows of up to PF_TILE items in LDS by a bitonic network; a tile of several short rows is sorted
 * as one. Few of many: each tile of a row keeps its first `take` items, and so on with what is left until one tile is.
 * Long rows: radix sort by bytes of the key, lowest first. For each byte `count` counts the values of each tile, `sum`
 * turns counts into places, one block for each value, and `move` puts items there; lanes of a wave that hold equal bytes
 * find each other by ballots, so equal bytes keep their order. There are no atomics on memory: every run is the same.
 *
 * Bytes: tiles read x and write positions. Radix: (2 keys + 1 position) to read and a key and a position to write for
 * each byte of the key.
 */
#ifndef PF_SORT_HIP
#define PF_SORT_HIP

#include "pf_element.h"

namespace pf_sorting {

/* ---- keys -------------------------------------------------------------------------------------------------------- */

template <int BYTES> struct pf_bits_of {
  typedef uint32_t type;
};
template <> struct pf_bits_of<1> {
  typedef uint8_t type;
};
template <> struct pf_bits_of<2> {
  typedef uint16_t type;
};
template <> struct pf_bits_of<8> {
  typedef uint64_t type;
};

PF_FN constexpr int pf_is_float(float) { return 1; }
PF_FN constexpr int pf_is_float(double) { return 1; }
template <class T> PF_FN constexpr int pf_is_float(T) { return 0; }

/* Keys that are what they are: unsigned numbers. */
template <class T> struct pf_as_is {
  typedef T stored;
  typedef T bits;
  PF_FN T key(T x) { return x; }
};

/* Keys of elements in order. */
template <class E, int DESCENDING> struct pf_ordered {
  typedef typename E::stored stored;
  typedef typename pf_bits_of<sizeof(stored)>::type bits;
  PF_FN bits key(stored s) {
    const bits sign = (bits)((bits)1 << (8 * sizeof(bits) - 1)), all = (bits)~(bits)0;
    bits u;
    __builtin_memcpy(&u, &s, sizeof u);
    if (pf_is_float((typename E::wide)0)) {
      const typename E::wide x = E::load(s);
      u = (bits)(u ^ (u & sign ? all : sign));
      u = x == 0 ? sign : x == x ? u : all;
    } else if ((stored)-1 < (stored)0) {
      u = (bits)(u ^ sign);
    }
    return DESCENDING ? (bits)(u ^ all) : u;
  }
};

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

enum { PF_TILE = 4096 };
enum { PF_ROWS, PF_LENGTH, PF_TAKE, PF_PIECES, PF_PIECES_MAGIC }; /* a row is cut into pieces of SIZE items */

/* Items of a tile in LDS: `wide` ones in two arrays, others as one word that sorts by key, then position. */
template <class B, int N> struct pf_items {
  B keys[N];
  uint32_t positions[N];
  PF_FN void put(pf_items &t, int i, B key, uint32_t position) {
    t.keys[i] = key;
    t.positions[i] = position;
  }
  PF_FN B key(const pf_items &t, int i) { return t.keys[i]; }
  PF_FN uint32_t position(const pf_items &t, int i) { return t.positions[i]; }
  PF_FN void order(pf_items &t, int i, int j, int up) {
    const B a = t.keys[i], b = t.keys[j];
    const uint32_t p = t.positions[i], q = t.positions[j];
    if (((a > b) | ((a == b) & (p > q))) != up) return;
    t.keys[i] = b;
    t.keys[j] = a;
    t.positions[i] = q;
    t.positions[j] = p;
  }
};
template <int N> struct pf_items<uint32_t, N> {
  uint64_t words[N];
  PF_FN void put(pf_items &t, int i, uint32_t key, uint32_t position) { t.words[i] = (uint64_t)key << 32 | position; }
  PF_FN uint32_t key(const pf_items &t, int i) { return (uint32_t)(t.words[i] >> 32); }
  PF_FN uint32_t position(const pf_items &t, int i) { return (uint32_t)t.words[i]; }
  PF_FN void order(pf_items &t, int i, int j, int up) {
    const uint64_t a = t.words[i], b = t.words[j];
    t.words[i] = (a > b) == up ? b : a;
    t.words[j] = (a > b) == up ? a : b;
  }
};

/* Keys of less than 4 bytes are kept in 4: one word for an item is quicker. */
template <class B> struct pf_held {
  typedef uint32_t type;
};
template <> struct pf_held<uint64_t> {
  typedef uint64_t type;
};

/* Sort SIZE items of each row, pieces of a longer one, and keep the first `take` of each piece.
 * In: x, or with `FROM_ITEMS` keys and positions that an earlier pass kept. Out: positions, or items for the next pass. */
template <class K, int SIZE, int ROOM, int THREADS, int FROM_ITEMS, int TO_ITEMS, class I>
PF_FN void pf_sort_tiles(const typename K::stored *x, const uint32_t *from, int64_t *out, typename pf_held<typename K::bits>::type *keys_out,
                         uint32_t *positions_out, const int64_t *arg) {
  typedef typename pf_held<typename K::bits>::type B;
  typedef pf_items<B, ROOM> items;
  PF_SHARED items tile;
  const int64_t length = arg[PF_LENGTH], take = arg[PF_TAKE];
  const I pieces = (I)arg[PF_PIECES], first = (I)pf_block() * (ROOM / SIZE), tasks = (I)arg[PF_ROWS] * pieces;
  for (int i = pf_thread(); i < ROOM; i += THREADS) {
    const I task = first + i / SIZE, row = pf_quotient(task < tasks ? task : tasks - 1, arg[PF_PIECES], arg[PF_PIECES_MAGIC]);
    const int64_t j = (int64_t)(task - row * pieces) * SIZE + i % SIZE;
    B key = (B)~(B)0;
    uint32_t position = ~0u; /* behind every item there is */
    if (task < tasks && j < length) {
      const int64_t at = (int64_t)row * length + j;
      key = FROM_ITEMS ? ((const B *)x)[at] : (B)K::key(x[at]);
      position = FROM_ITEMS ? from[at] : (uint32_t)j;
    }
    items::put(tile, i, key, position);
  }
  for (int run = 2; run <= SIZE; run *= 2)
    for (int gap = run / 2; gap > 0; gap /= 2) {
      pf_barrier();
      for (int n = pf_thread(); n < ROOM / 2; n += THREADS) {
        const int i = 2 * n - (n & (gap - 1)); /* skips the partners */
        items::order(tile, i, i + gap, (i & run & (SIZE - 1)) == 0);
      }
    }
  pf_barrier();
  for (int i = pf_thread(); i < ROOM; i += THREADS) {
    const I task = first + i / SIZE;
    if (task >= tasks || i % SIZE >= take) continue;
    const int64_t at = (int64_t)task * take + i % SIZE;
    const uint32_t position = items::position(tile, i);
    if (TO_ITEMS) {
      keys_out[at] = items::key(tile, i);
      positions_out[at] = position;
    } else {
      out[at] = position;
    }
  }
}

/* ---- radix sort -------------------------------------------------------------------------------------------------- */

enum { PF_RADIX_BLOCK = 256, PF_RADIX_EACH = 16, PF_RADIX_TILE = PF_RADIX_BLOCK * PF_RADIX_EACH, PF_VALUES = 256 };
enum { PF_SHIFT = PF_PIECES_MAGIC + 1, PF_COUNTS, PF_SUMS }; /* the byte, and where counts and sums lie in scratch */

/* counts[row, value, tile]: how many keys of the tile have the byte `value`. */
template <class K, int FIRST, class I>
PF_FN void pf_radix_count(const typename K::stored *x, const typename K::bits *keys, uint32_t *counts, const int64_t *arg) {
  PF_SHARED uint32_t seen[PF_VALUES];
  const int64_t length = arg[PF_LENGTH], tiles = arg[PF_PIECES];
  const I row = pf_quotient((I)pf_block(), arg[PF_PIECES], arg[PF_PIECES_MAGIC]);
  const int64_t tile = (I)pf_block() - row * (I)tiles, from = tile * PF_RADIX_TILE, start = (int64_t)row * length;
  seen[pf_thread()] = 0;
  pf_barrier();
  for (int k = 0; k < PF_RADIX_EACH; k++) {
    const int64_t j = from + k * PF_RADIX_BLOCK + pf_thread();
    if (j >= length) break;
    const typename K::bits key = FIRST ? K::key(x[start + j]) : keys[start + j];
    pf_atomic_add(&seen[(int)(key >> arg[PF_SHIFT]) & (PF_VALUES - 1)], 1u);
  }
  pf_barrier();
  counts[((int64_t)row * PF_VALUES + pf_thread()) * tiles + tile] = seen[pf_thread()];
}

PF_FN uint32_t pf_add(uint32_t a, uint32_t b) { return a + b; }

/* An exclusive scan over a value for each thread, and the total. There must be a barrier between two uses of `room`. */
PF_FN uint32_t pf_block_scan(uint32_t x, uint32_t *room, uint32_t *total) {
  constexpr int waves = PF_RADIX_BLOCK / PF_WAVE;
  const int lane = pf_thread() % PF_WAVE, wave = pf_thread() / PF_WAVE;
  const uint32_t upto = pf_lane_scan<PF_WAVE>(x, lane, pf_add);
  if (lane == PF_WAVE - 1) room[wave] = upto;
  pf_barrier();
  uint32_t before = 0;
  *total = 0;
  PF_UNROLL
  for (int w = 0; w < waves; w++) {
    before = w == wave ? *total : before;
    *total += room[w];
  }
  return before + upto - x;
}

/* counts of a row and value -> how many there are in the tiles before; sums: in all tiles. Few tiles: a thread for each. */
PF_FN void pf_radix_sum_few(uint32_t *counts, uint32_t *sums, const int64_t *arg) {
  const int64_t line = (int64_t)pf_block() * PF_RADIX_BLOCK + pf_thread();
  uint32_t *mine = counts + line * arg[PF_PIECES], carry = 0;
  for (int64_t i = 0; i < arg[PF_PIECES]; i++) {
    const uint32_t x = mine[i];
    mine[i] = carry;
    carry += x;
  }
  sums[line] = carry;
}
/* Many tiles: a block for each. */
PF_FN void pf_radix_sum(uint32_t *counts, uint32_t *sums, const int64_t *arg) {
  PF_SHARED uint32_t room[2][PF_RADIX_BLOCK / PF_WAVE];
  uint32_t *mine = counts + (int64_t)pf_block() * arg[PF_PIECES], carry = 0, total;
  int turn = 0;
  for (int64_t at = 0; at < arg[PF_PIECES]; at += PF_RADIX_BLOCK, turn ^= 1) {
    const int64_t i = at + pf_thread();
    const int inside = i < arg[PF_PIECES];
    const uint32_t x = inside ? mine[i] : 0u;
    const uint32_t before = pf_block_scan(x, room[turn], &total);
    if (inside) mine[i] = carry + before;
    carry += total;
  }
  if (pf_thread() == 0) sums[pf_block()] = carry;
}

/* Items to their places. LAST: positions to `out`, as far as there is room for them. */
template <class K, int FIRST, int LAST, class I>
PF_FN void pf_radix_move(const typename K::stored *x, const typename K::bits *keys, const uint32_t *positions,
                         typename K::bits *keys_out, uint32_t *positions_out, int64_t *out, const uint32_t *counts,
                         const uint32_t *sums, const int64_t *arg) {
  constexpr int waves = PF_RADIX_BLOCK / PF_WAVE, per_wave = PF_WAVE * PF_RADIX_EACH;
  PF_SHARED uint32_t seen[waves][PF_VALUES];
  PF_SHARED uint32_t room[waves];
  const int64_t length = arg[PF_LENGTH], tiles = arg[PF_PIECES], take = arg[PF_TAKE];
  const I row = pf_quotient((I)pf_block(), arg[PF_PIECES], arg[PF_PIECES_MAGIC]);
  const int64_t tile = (I)pf_block() - row * (I)tiles, start = (int64_t)row * length;
  const int lane = pf_thread() % PF_WAVE, wave = pf_thread() / PF_WAVE;
  const int64_t from = tile * PF_RADIX_TILE + wave * per_wave + lane;
  uint32_t total;
  const int64_t line = (int64_t)row * PF_VALUES + pf_thread();
  const uint32_t base = pf_block_scan(sums[line], room, &total) + counts[line * tiles + tile];
  for (int w = 0; w < waves; w++) seen[w][pf_thread()] = 0;
  pf_barrier();
  typename K::bits key[PF_RADIX_EACH];
  uint32_t rank[PF_RADIX_EACH];
  PF_UNROLL
  for (int k = 0; k < PF_RADIX_EACH; k++) {
    const int64_t j = from + k * PF_WAVE;
    const int inside = j < length;
    key[k] = inside ? (FIRST ? K::key(x[start + j]) : keys[start + j]) : (typename K::bits)0;
    const int value = (int)(key[k] >> arg[PF_SHIFT]) & (PF_VALUES - 1);
    uint64_t peers = pf_ballot(inside);
    PF_UNROLL
    for (int bit = 0; bit < 8; bit++) {
      const uint64_t set = pf_ballot(value >> bit & 1);
      peers &= value >> bit & 1 ? set : ~set;
    }
    const int before = pf_count_bits(peers & (((uint64_t)1 << lane) - 1));
    const uint32_t so_far = seen[wave][value];
    rank[k] = so_far + before;
    pf_wave_sync();
    if (inside && before == 0) seen[wave][value] = so_far + pf_count_bits(peers);
    pf_wave_sync();
  }
  pf_barrier();
  uint32_t at = base; /* of this thread's value, wave after wave */
  for (int w = 0; w < waves; w++) {
    const uint32_t here = seen[w][pf_thread()];
    seen[w][pf_thread()] = at;
    at += here;
  }
  pf_barrier();
  PF_UNROLL
  for (int k = 0; k < PF_RADIX_EACH; k++) {
    const int64_t j = from + k * PF_WAVE;
    if (j >= length) continue;
    const int value = (int)(key[k] >> arg[PF_SHIFT]) & (PF_VALUES - 1);
    const int64_t to = seen[wave][value] + rank[k];
    const uint32_t position = FIRST ? (uint32_t)j : positions[start + j];
    if (LAST) {
      if (to < take) out[(int64_t)row * take + to] = position;
    } else {
      keys_out[start + to] = key[k];
      positions_out[start + to] = position;
    }
  }
}

}  // namespace pf_sorting

#endif
