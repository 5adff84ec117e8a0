/* Keys and values of attention_decode.hip as they lie in memory, in lines behind each other or in pages: pieces of 16
 * bytes, read straight into registers. Its arguments, too. */
#ifndef PF_ATTEND_LINES_H
#define PF_ATTEND_LINES_H
#include "pf_attend.h"
#include "pf_element.h"

enum {
  PF_DEC_MOST_SPLITS = 64,
  PF_DEC_SPLITS = PF_ATT_SPANS + 1,
  /* pages: how many, 2^shift lines each; steps from one to the next; strides of table, lengths, sinks and scales */
  PF_PAGE_COUNT, PF_PAGE_SHIFT, PF_PAGE_CHECK, PF_PAGE_KEY, PF_PAGE_VALUE, PF_PAGE_TABLE,
  PF_PAGE_COLUMN, PF_PAGE_LENGTHS, PF_PAGE_SINKS, PF_PAGE_KEY_SCALE, PF_PAGE_VALUE_SCALE = PF_PAGE_KEY_SCALE + 3,
};
template <class T, int GIVEN> struct pf_page_scale {
  enum { SCALED = GIVEN };
  typedef T E;
};

typedef pf_vector<uint32_t, 4> pf_words; /* a piece; as numbers of 16 bits the compiler would take its load apart */

PF_FN uint32_t pf_bits_of(float x) { return pf_bits_f32(x); } PF_FN uint32_t pf_bits_of(uint16_t x) { return x; }
PF_FN uint32_t pf_bits_of(uint8_t x) { return x; } PF_FN uint32_t pf_bits_of(int8_t x) { return (uint8_t)x; }

/* A piece of a line from number k on, and 0 where there is none. VECTOR of 2: there is one. */
template <int VECTOR, class S> PF_FN pf_words pf_read_words(const pf_matrix<S> &from, int line, int k) {
  enum { PIECE = 16 / sizeof(S), EACH = 4 / sizeof(S) };
  pf_words got;
  if (VECTOR == 2) {
    got = *(const pf_words *)(from.at + line * from.line_step + k);
  } else if (VECTOR) {
    const int inside = line < from.lines && k < from.depth;
    got = *(const pf_words *)(from.at + pf_least(line, from.lines - 1) * from.line_step + (k < from.depth ? k : 0));
    PF_UNROLL
    for (int w = 0; w < 4; w++) got.at[w] = inside ? got.at[w] : 0;
  } else {
    const pf_vector<S, PIECE> numbers = pf_read<PIECE, 0>(from, line, k);
    PF_UNROLL
    for (int w = 0; w < 4; w++) got.at[w] = 0;
    PF_UNROLL
    for (int n = 0; n < PIECE; n++) got.at[n / EACH] |= pf_bits_of(numbers.at[n]) << 32 / EACH * (n % EACH);
  }
  return got;
}
/* Number n of a piece. */
PF_FN float pf_number(pf_of<float>, const pf_words &piece, int n) { return pf_from_bits_f32(piece.at[n]); }
template <class E> PF_FN float pf_number(E, const pf_words &piece, int n) {
  enum { EACH = 4 / sizeof(typename E::stored) };
  return (float)E::load((typename E::stored)(piece.at[n / EACH] >> 32 / EACH * (n % EACH)));
}
#define PF_FLOAT8_NUMBER(name)                                               \
  PF_FN float pf_number(pf_##name, const pf_words &piece, int n) {           \
    uint8_t four[4];                                                         \
    __builtin_memcpy(four, &piece.at[n / 4], 4);                             \
    return pf_##name##_at(four, n % 4);                                      \
  }
PF_FLOAT8_NUMBER(f8e4m3fn)
PF_FLOAT8_NUMBER(f8e4m3fnuz)
PF_FLOAT8_NUMBER(f8e5m2)

/* Where a key and its value begin: so many pieces behind the first ones, fewer than 2^31. */
struct pf_pieces {
  int key, value;
};
template <class S> PF_FN const pf_words &pf_piece_at(const pf_matrix<S> &from, int n) { return ((const pf_words *)from.at)[n]; }
template <class S> PF_FN int pf_in_pieces(int n, int64_t step) { return n * (int)(step / (int)(16 / sizeof(S))); }

/* Keys and values as they lie: in lines behind each other, or in pages of 2^PF_PAGE_SHIFT lines that a table names. */
template <class S, int VECTOR> struct pf_lines_whole {
  enum { PAGED = 0, SCALED = 0 };
  typedef int place;
  pf_matrix<S> keys, values;
  PF_MEMBER int find(int line) const { return line; }
  PF_MEMBER pf_words key(int line, int k) const { return pf_read_words<VECTOR>(keys, line, k); }
  PF_MEMBER pf_words value(int line, int k) const { return pf_read_words<VECTOR>(values, line, k); }
  PF_MEMBER pf_pieces pieces(int line) const {
    return {pf_in_pieces<S>(line, keys.line_step), pf_in_pieces<S>(line, values.line_step)};
  }
};
struct pf_place_of_line {
  int inside, line, page;
};
template <class S, int VECTOR, class C> struct pf_lines_paged {
  enum { PAGED = 1, SCALED = C::SCALED };
  typedef pf_place_of_line place;
  pf_matrix<S> keys, values; /* of page 0 */
  const int *table;
  const typename C::E::stored *scales, *value_scales;
  pf_late_args arg;
  int64_t *err;
  int head;
  PF_MEMBER pf_place_of_line find(int line) const {
    const int shift = (int)arg[PF_PAGE_SHIFT], inside = line < keys.lines;
    const int page = table[(pf_least(line, keys.lines - 1) >> shift) * arg[PF_PAGE_COLUMN]];
    const int bad = (unsigned)page >= (unsigned)arg[PF_PAGE_COUNT];
    if (bad) pf_bad_index(err, arg[PF_PAGE_CHECK], page, arg[PF_PAGE_COUNT]);
    return {inside, line & ((1 << shift) - 1), bad ? 0 : page};
  }
  PF_MEMBER int pack(int line) const {
    const pf_place_of_line at = find(line);
    return at.page << arg[PF_PAGE_SHIFT] | at.line;
  }
  PF_MEMBER pf_place_of_line unpack(int packed, int inside) const {
    const int shift = (int)arg[PF_PAGE_SHIFT];
    return {inside, packed & ((1 << shift) - 1), packed >> shift};
  }
  PF_MEMBER pf_matrix<S> line_of(pf_matrix<S> from, const pf_place_of_line &p, int page_step) const {
    from.at += p.page * arg[page_step] + p.line * from.line_step, from.lines = p.inside, from.line_step = 0;
    return from;
  }
  PF_MEMBER pf_words key(const pf_place_of_line &p, int k) const { return pf_read_words<VECTOR>(line_of(keys, p, PF_PAGE_KEY), 0, k); }
  PF_MEMBER pf_words value(const pf_place_of_line &p, int k) const { return pf_read_words<VECTOR>(line_of(values, p, PF_PAGE_VALUE), 0, k); }
  PF_MEMBER pf_pieces pieces(const pf_place_of_line &p) const {
    return {pf_in_pieces<S>(p.page, arg[PF_PAGE_KEY]) + pf_in_pieces<S>(p.line, keys.line_step),
            pf_in_pieces<S>(p.page, arg[PF_PAGE_VALUE]) + pf_in_pieces<S>(p.line, values.line_step)};
  }
  PF_MEMBER float scale(const typename C::E::stored *of, const pf_place_of_line &p, int strides) const {
    return C::E::load(of[p.page * arg[strides] + p.line * arg[strides + 1] + head * arg[strides + 2]]);
  }
  PF_MEMBER float key_scale(const pf_place_of_line &p) const { return scale(scales, p, PF_PAGE_KEY_SCALE); }
  PF_MEMBER float value_scale(const pf_place_of_line &p) const { return scale(value_scales, p, PF_PAGE_VALUE_SCALE); }
};

#endif
