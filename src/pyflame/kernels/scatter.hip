/* Writes at computed positions, on a GPU:
 *
 *   base[f(o)] = base[f(o)] op values[o]   for every o of the index space
 *
 * Coordinates of o are keys, which say where an element goes (those that indices change with, and those that several
 * elements of the base share), or free ones, along which whole lines of the base are written alike. Every key has an id:
 * keys with one id hit the same elements. The result is that of index order, the same bits in every run:
 *   serial   few keys: a thread takes a column and goes through the keys in order
 *   last     few assignments: a thread writes if no key behind its own has the same id
 *   atomic   integers and extremes: the order does not matter
 *   claim    assignments: each id remembers its last key, and that one writes
 *   sorted   sums and products of floats: keys are sorted by id (sort.hip); a thread goes through PF_PIECE keys of a
 *            column and adds up runs of one id. Runs that cross pieces leave partial results, which `carry` adds up.
 * `check` looks at all indices before anything is written; where it found a bad one nobody writes (GUARDED).
 *
 * Bytes: every index and value once, every element that is hit once to read and once to write; sorted: a key and a
 * position for each byte of the id, and each index twice.
 */
#ifndef PF_SCATTER_HIP
#define PF_SCATTER_HIP

#include "pf_element.h"
#include "sort.hip"

namespace pf_scattering {

enum { PF_SCATTER_BLOCK = 256, PF_PIECE = 32 };
enum {
  PF_CHECK, PF_OFFSET,                     /* number of the check; first element of the region */
  PF_KEYS, PF_COLUMNS, PF_INNER, PF_MAGIC, /* how many; which of them neighbouring threads take, and its magic */
  PF_IDS, PF_ORDER, PF_PARTS,              /* ids there are; where sorted keys and partial results lie in scratch */
  PF_TABLE /* indices: size, step in base and id; keys: extent, magic, steps in base, values, id and indices; free: alike */
};

struct pf_place {
  int64_t base, value, id; /* id < 0: an index is out of range */
};

/* I: the type of positions among keys and columns. */
template <int INDICES, int KEYS, int FREE, class I> struct pf_space {
  typedef I position;
  static constexpr int key_words = 5 + INDICES, keys = PF_TABLE + 3 * INDICES, columns = keys + KEYS * key_words;

  /* Of a column. */
  PF_FN pf_place column(I w, const int64_t *arg) {
    pf_place p = {0, 0, 0};
    PF_UNROLL
    for (int d = FREE - 1; d >= 0; d--) {
      const int64_t *a = arg + columns + 4 * d;
      const I rest = d ? pf_quotient(w, a[0], a[1]) : (I)0;
      const int64_t c = w - rest * (I)a[0];
      p.base += c * a[2];
      p.value += c * a[3];
      w = rest;
    }
    return p;
  }

  /* Of a key, without its indices; `at`: where those lie. */
  PF_FN pf_place start(I h, int64_t *at, const int64_t *arg) {
    pf_place p = {arg[PF_OFFSET], 0, 0};
    PF_UNROLL
    for (int k = 0; k < INDICES; k++) at[k] = 0;
    PF_UNROLL
    for (int d = KEYS - 1; d >= 0; d--) {
      const int64_t *a = arg + keys + key_words * d;
      const I rest = d ? pf_quotient(h, a[0], a[1]) : (I)0;
      const int64_t c = h - rest * (I)a[0];
      p.base += c * a[2];
      p.value += c * a[3];
      p.id += c * a[4];
      PF_UNROLL
      for (int k = 0; k < INDICES; k++) at[k] += c * a[5 + k];
      h = rest;
    }
    return p;
  }
  PF_FN int64_t value(I h, const int64_t *arg) {
    int64_t at[INDICES];
    return start(h, at, arg).value;
  }

  /* Of a key, with its indices. A bad one is reported. */
  PF_FN pf_place locate(I h, const int64_t *const *index, int64_t *err, const int64_t *arg) {
    int64_t at[INDICES];
    pf_place p = start(h, at, arg);
    PF_UNROLL
    for (int k = 0; k < INDICES; k++) {
      const int64_t *a = arg + PF_TABLE + 3 * k;
      const int64_t given = index[k][at[k]], i = given + (given < 0 ? a[0] : 0);
      if ((uint64_t)i >= (uint64_t)a[0]) {
        pf_bad_index(err, arg[PF_CHECK], given, a[0]);
        p.id = -1;
        return p;
      }
      p.base += i * a[1];
      p.id += i * a[2];
    }
    return p;
  }
};

struct pf_assign {
  template <class W> PF_FN W of(W a, W b) { return b; }
};
/* Integers wrap: unsigned arithmetic says so. */
#define PF_WRAPPING(name, op)                                                                   \
  struct name {                                                                                 \
    PF_FN float of(float a, float b) { return a op b; }                                         \
    PF_FN double of(double a, double b) { return a op b; }                                      \
    template <class W> PF_FN W of(W a, W b) { return (W)((uint64_t)a op (uint64_t)b); }         \
  };
PF_WRAPPING(pf_plus, +)
PF_WRAPPING(pf_times, *)
struct pf_greatest {
  template <class W> PF_FN W of(W a, W b) { return (W)pf_max(a, b); }
};
struct pf_least {
  template <class W> PF_FN W of(W a, W b) { return (W)pf_min(a, b); }
};

template <class E, class V, class OP> struct pf_write {
  typedef typename E::stored T;
  typedef typename V::stored U;
  typedef typename E::wide W;
  PF_FN void plain(T *at, U value) { *at = E::store(OP::of(E::load(*at), (W)V::load(value))); }
};
template <class E, class V, class OP> PF_FN void pf_write_atomic(typename E::stored *at, typename V::stored value) {
  typedef typename E::stored T;
  const typename E::wide v = (typename E::wide)V::load(value);
  pf_atomic_update(at, [v](T old) { return (T)E::store(OP::of(E::load(old), v)); });
}
/* The hardware adds whole words by itself. */
template <class T> PF_FN void pf_add_atomic(T *at, T value) {
  typedef typename pf_unsigned<sizeof(T)>::type U;
  pf_atomic_add((U *)at, (U)value);
}

/* Key and column of a thread; whether there are such. */
template <class S> PF_FN int pf_task(typename S::position *h, typename S::position *w, int columns_inside, const int64_t *arg) {
  typedef typename S::position I;
  const I t = (I)pf_block() * PF_SCATTER_BLOCK + pf_thread();
  if (t >= (I)arg[PF_KEYS] * (I)arg[PF_COLUMNS]) return 0;
  const I outer = pf_quotient(t, arg[PF_INNER], arg[PF_MAGIC]), inner = t - outer * (I)arg[PF_INNER];
  *h = columns_inside ? outer : inner;
  *w = columns_inside ? inner : outer;
  return 1;
}
template <class I> PF_FN I pf_key() { return (I)pf_block() * PF_SCATTER_BLOCK + pf_thread(); }

template <class S, class E, class V, class OP, int GUARDED>
PF_FN void pf_serial(typename E::stored *base, const typename V::stored *values, const int64_t *const *index, int64_t *err, const int64_t *arg) {
  typedef typename S::position I;
  const I w = pf_key<I>();
  if (w >= (I)arg[PF_COLUMNS]) return;
  if (GUARDED) {
    int bad = err[0] != 0;
    for (I h = 0; h < (I)arg[PF_KEYS]; h++) bad |= S::locate(h, index, err, arg).id < 0;
    if (bad) return;
  }
  const pf_place c = S::column(w, arg);
  for (I h = 0; h < (I)arg[PF_KEYS]; h++) {
    const pf_place p = S::locate(h, index, err, arg);
    if (p.id >= 0) pf_write<E, V, OP>::plain(base + p.base + c.base, values[p.value + c.value]);
  }
}

template <class S, class E, class V, int COLUMNS_INSIDE, int GUARDED>
PF_FN void pf_write_last(typename E::stored *base, const typename V::stored *values, const int64_t *const *index, int64_t *err, const int64_t *arg) {
  typedef typename S::position I;
  I h, w;
  if (!pf_task<S>(&h, &w, COLUMNS_INSIDE, arg)) return;
  const pf_place p = S::locate(h, index, err, arg), c = S::column(w, arg);
  int stays = p.id < 0 || (GUARDED && err[0]);
  _Pragma("unroll 4")
  for (I other = GUARDED ? 0 : h + 1; other < (I)arg[PF_KEYS]; other++) {
    const int64_t id = S::locate(other, index, err, arg).id;
    stays |= (GUARDED && id < 0) || (other > h && id == p.id);
  }
  if (!stays) pf_write<E, V, pf_assign>::plain(base + p.base + c.base, values[p.value + c.value]);
}

template <class S> PF_FN void pf_check(const int64_t *const *index, int64_t *err, const int64_t *arg) {
  typedef typename S::position I;
  const I h = pf_key<I>();
  if (h < (I)arg[PF_KEYS]) S::locate(h, index, err, arg);
}

/* NATIVE: sums of whole words. */
template <class S, class E, class V, class OP, int COLUMNS_INSIDE, int GUARDED, int NATIVE>
PF_FN void pf_atomic(typename E::stored *base, const typename V::stored *values, const int64_t *const *index, int64_t *err, const int64_t *arg) {
  typename S::position h, w;
  if (!pf_task<S>(&h, &w, COLUMNS_INSIDE, arg) || (GUARDED && err[0])) return;
  const pf_place p = S::locate(h, index, err, arg), c = S::column(w, arg);
  if (p.id < 0) return;
  if constexpr (NATIVE)
    pf_add_atomic(base + p.base + c.base, values[p.value + c.value]);
  else
    pf_write_atomic<E, V, OP>(base + p.base + c.base, values[p.value + c.value]);
}

/* claims[id] = 1 + the last key of this id. Only what keys point to is looked at, so the rest need not be cleared. */
template <class S, int CLEAR> PF_FN void pf_claim(uint32_t *claims, const int64_t *const *index, int64_t *err, const int64_t *arg) {
  typedef typename S::position I;
  const I h = pf_key<I>();
  if (h >= (I)arg[PF_KEYS]) return;
  const pf_place p = S::locate(h, index, err, arg);
  if (p.id < 0) return;
  if (CLEAR)
    pf_atomic_store(&claims[p.id], 0u); /* several keys may have this id */
  else
    pf_atomic_max(&claims[p.id], (uint32_t)h + 1u);
}
template <class S, class E, class V, int COLUMNS_INSIDE, int GUARDED>
PF_FN void pf_write_claimed(typename E::stored *base, const typename V::stored *values, const uint32_t *claims,
                            const int64_t *const *index, int64_t *err, const int64_t *arg) {
  typename S::position h, w;
  if (!pf_task<S>(&h, &w, COLUMNS_INSIDE, arg) || (GUARDED && err[0])) return;
  const pf_place p = S::locate(h, index, err, arg), c = S::column(w, arg);
  if (p.id < 0 || claims[p.id] != (uint32_t)h + 1u) return;
  pf_write<E, V, pf_assign>::plain(base + p.base + c.base, values[p.value + c.value]);
}

/* ids[key]; one behind all others for a bad index. */
template <class S, class ID> PF_FN void pf_ids(ID *ids, const int64_t *const *index, int64_t *err, const int64_t *arg) {
  typedef typename S::position I;
  const I h = pf_key<I>();
  if (h >= (I)arg[PF_KEYS]) return;
  const pf_place p = S::locate(h, index, err, arg);
  ids[h] = (ID)(p.id < 0 ? arg[PF_IDS] : p.id);
}

/* A piece of the sorted keys: [from, to), and whether its first run began before it and its last one goes on behind it. */
template <class ID> struct pf_piece {
  int64_t from, to;
  ID first, last;
  int began_before, goes_on;

  PF_FN pf_piece of(int64_t b, const ID *ids, const int64_t *order, int64_t keys) {
    pf_piece p;
    p.from = b * PF_PIECE;
    p.to = p.from + PF_PIECE < keys ? p.from + PF_PIECE : keys;
    p.first = ids[order[p.from]];
    p.last = ids[order[p.to - 1]];
    p.began_before = p.from > 0 && ids[order[p.from - 1]] == p.first;
    p.goes_on = p.to < keys && ids[order[p.to]] == p.last;
    return p;
  }
};

/* parts: for each piece and column what its first run adds to an earlier piece's last, then what its last run has so far. */
template <class S, class E, class V, class OP, class ID, int GUARDED>
PF_FN void pf_combine(typename E::stored *base, const typename V::stored *values, const int64_t *const *index, const ID *ids,
                      const int64_t *order, char *parts, int64_t *err, const int64_t *arg) {
  typedef typename S::position I;
  typedef typename E::wide W;
  const I t = pf_key<I>(), b = pf_quotient(t, arg[PF_INNER], arg[PF_MAGIC]);
  const int64_t keys = arg[PF_KEYS], columns = arg[PF_COLUMNS], w = t - b * (I)columns;
  if ((int64_t)b * PF_PIECE >= keys || (GUARDED && err[0])) return;
  const pf_piece<ID> piece = pf_piece<ID>::of(b, ids, order, keys);
  const pf_place c = S::column((I)w, arg);
  ID id = piece.first;
  typename E::stored *at = 0; /* where this run goes; nowhere: it began before, or its index is bad */
  W sum = 0;
  for (int64_t q = piece.from; q < piece.to; q++) {
    const I h = (I)order[q];
    const ID next = ids[h];
    const W v = (W)V::load(values[S::value(h, arg) + c.value]);
    if (q > piece.from && next == id) {
      sum = OP::of(sum, v);
      continue;
    }
    if (at)
      *at = E::store(sum);
    else if (q > piece.from && id == piece.first)
      pf_put(parts, 2 * (int64_t)b * columns + w, sum);
    id = next;
    at = 0;
    sum = v;
    if ((int64_t)id != arg[PF_IDS] && !(q == piece.from && piece.began_before)) {
      at = base + S::locate(h, index, err, arg).base + c.base;
      sum = OP::of(E::load(*at), v);
    }
  }
  if (at && piece.goes_on)
    pf_put(parts, (2 * (int64_t)b + 1) * columns + w, sum);
  else if (at)
    *at = E::store(sum);
  else if (id == piece.first)
    pf_put(parts, 2 * (int64_t)b * columns + w, sum);
}

template <class S, class E, class OP, class ID, int GUARDED>
PF_FN void pf_carry(typename E::stored *base, const int64_t *const *index, const ID *ids, const int64_t *order, const char *parts,
                    int64_t *err, const int64_t *arg) {
  typedef typename S::position I;
  typedef typename E::wide W;
  const I t = pf_key<I>(), b = pf_quotient(t, arg[PF_INNER], arg[PF_MAGIC]);
  const int64_t keys = arg[PF_KEYS], columns = arg[PF_COLUMNS], w = t - b * (I)columns;
  if ((int64_t)b * PF_PIECE >= keys || (GUARDED && err[0])) return;
  const pf_piece<ID> piece = pf_piece<ID>::of(b, ids, order, keys);
  const int one_run = piece.first == piece.last;
  if (!piece.goes_on || (one_run && piece.began_before) || (int64_t)piece.last == arg[PF_IDS]) return;
  W sum = pf_get<W>(parts, (2 * (int64_t)b + 1) * columns + w);
  for (int64_t n = (int64_t)b + 1, more = 1; more; n++) {
    sum = OP::of(sum, pf_get<W>(parts, 2 * n * columns + w));
    const pf_piece<ID> next = pf_piece<ID>::of(n, ids, order, keys);
    more = next.last == piece.last && next.goes_on;
  }
  base[S::locate((I)order[piece.to - 1], index, err, arg).base + S::column((I)w, arg).base] = E::store(sum);
}

}  // namespace pf_scattering

#endif
