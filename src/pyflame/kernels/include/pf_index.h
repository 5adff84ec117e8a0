/* Indices that a GPU kernel is given as data, and the report of bad ones; pf_gpu.h includes this and says what each does. */
#ifndef PF_INDEX_H
#define PF_INDEX_H

/* The first bad index wins: {1 + number of the check, index, size}. */
PF_FN void pf_bad_index(int64_t *record, int64_t check, int64_t index, int64_t size) {
  if (pf_first(record, check + 1)) {
    record[1] = index;
    record[2] = size;
  }
}
PF_FN int64_t pf_checked(int64_t index, int64_t size, int64_t *record, int64_t check) {
  int64_t i = index + (index < 0 ? size : 0);
  if ((uint64_t)i < (uint64_t)size) return i;
  pf_bad_index(record, check, index, size);
  return 0;
}

/* Which line of `size` is written for a key, one of those that an index names lines for: none (-1) where a key behind it
 * names the same, or where a bad index was found, which is reported. Four keys are read at once. */
PF_FN int64_t pf_line(const int64_t *index, int key, int keys, int64_t size, int64_t *record, int64_t check) {
  const int64_t own = index[key];
  int stays = record[0] != 0, odd = 0, bad = 0;
  _Pragma("unroll 1")
  for (int first = 0; first < keys; first += 4) {
    PF_UNROLL
    for (int n = first; n < first + 4; n++) {
      const int64_t given = n < keys ? index[n] : own;
      odd |= (uint64_t)given >= (uint64_t)size;
      stays |= given == own && n > key && n < keys;
    }
  }
  if (!odd) return stays ? -1 : own;
  const int64_t line = own + (own < 0 ? size : 0); /* some count from the end, or are bad */
  for (int n = 0; n < keys; n++) {
    const int64_t other = index[n] + (index[n] < 0 ? size : 0);
    if ((uint64_t)other >= (uint64_t)size) pf_bad_index(record, check, index[n], size), bad = 1;
    stays |= n > key && other == line;
  }
  return bad || stays ? -1 : line;
}

#endif
