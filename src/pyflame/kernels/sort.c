/* Positions of the first `take` elements of each row in sorted order; all of them: an argsort.
 *
 * Every element becomes a word that sorts as an unsigned number: its key above, its position below, so equal keys keep
 * their order and a sort of words is stable. Keys: floats by their bits with the sign folded in, -0 as 0, NaN above
 * everything; integers with the sign bit, if they have one, flipped; for descending order all bits of the key flipped.
 *
 * Few of many are kept in a heap (most elements lose against its root); else short rows are sorted by insertion and long
 * ones by bytes of the key, lowest first (radix sort), passing over bytes that all keys share.
 *
 * Bytes: the row once, two words per element in the worker's scratch once per byte of the key, `take` positions.
 *
 * Before including this file define PF_T (stored type), PF_FLOAT (0 or 1), PF_LOAD(x), PF_WIDE (1: 64-bit keys), PF_NAME.
 * Buffers: x, positions, scratch. A task is a row.
 */
enum { LENGTH, TAKE, DESCENDING, WORKER_BYTES };
enum { PF_SHORT = 64, PF_HEAP_SHARE = 8, PF_BLOCK = 64 };

#if PF_WIDE
typedef struct {
  uint64_t key, position;
} pf_item;
#define PF_ITEM(k, p) ((pf_item){(k), (uint64_t)(p)})
#define PF_LESS(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).position < (b).position))
#define PF_BYTE(a, d) ((a).key >> (8 * (d)) & 255)
#define PF_RANK_OF(a) ((a).key)
#define PF_POSITION(a) ((int64_t)(a).position)
enum { PF_DIGITS = 8 };
typedef uint64_t pf_bits;
typedef double pf_real;
typedef int64_t pf_whole;
#else
typedef uint64_t pf_item;
#define PF_ITEM(k, p) ((uint64_t)(k) << 32 | (uint64_t)(p))
#define PF_LESS(a, b) ((a) < (b))
#define PF_BYTE(a, d) ((a) >> (32 + 8 * (d)) & 255)
#define PF_RANK_OF(a) ((pf_bits)((a) >> 32))
#define PF_POSITION(a) ((int64_t)((a) & 0xffffffffu))
enum { PF_DIGITS = 4 };
typedef uint32_t pf_bits;
typedef float pf_real;
typedef int32_t pf_whole;
#endif
static const pf_bits PF_SIGN = (pf_bits)1 << (8 * sizeof(pf_bits) - 1);

static inline pf_bits pf_order(PF_T stored, pf_bits flip) {
#if PF_FLOAT
  pf_real x = PF_LOAD(stored);
  x = x == 0 ? 0 : x;
  pf_bits u;
  memcpy(&u, &x, sizeof u);
  u ^= u & PF_SIGN ? ~(pf_bits)0 : PF_SIGN;
  return (x == x ? u : ~(pf_bits)0) ^ flip;
#else
  const int has_sign = (PF_T)-1 < (PF_T)0;
  return (has_sign ? (pf_bits)(pf_whole)stored ^ PF_SIGN : (pf_bits)stored) ^ flip;
#endif
}

static void pf_insertion_sort(pf_item *a, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    const pf_item x = a[i];
    int64_t j = i;
    for (; j > 0 && PF_LESS(x, a[j - 1]); j--) a[j] = a[j - 1];
    a[j] = x;
  }
}

/* Sorts a with b as space; gives the one that holds the result. */
static pf_item *pf_sort(pf_item *a, pf_item *b, int64_t n) {
  if (n <= PF_SHORT) {
    pf_insertion_sort(a, n);
    return a;
  }
  int64_t count[PF_DIGITS][256];
  memset(count, 0, sizeof count);
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < PF_DIGITS; d++) count[d][PF_BYTE(a[i], d)]++;
  for (int d = 0; d < PF_DIGITS; d++) {
    if (count[d][PF_BYTE(a[0], d)] == n) continue;
    int64_t at = 0;
    for (int64_t v = 0; v < 256; v++) {
      const int64_t here = count[d][v];
      count[d][v] = at;
      at += here;
    }
    for (int64_t i = 0; i < n; i++) b[count[d][PF_BYTE(a[i], d)]++] = a[i];
    pf_item *swap = a;
    a = b;
    b = swap;
  }
  return a;
}

static void pf_sift(pf_item *heap, int64_t n, pf_item x) {
  int64_t i = 0;
  for (int64_t child = 1; child < n; child = 2 * i + 1) {
    child += child + 1 < n && PF_LESS(heap[child], heap[child + 1]);
    if (!PF_LESS(x, heap[child])) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = x;
}

PF_KERNEL(PF_NAME) {
  const int64_t n = arg[LENGTH], take = arg[TAKE];
  const pf_bits flip = arg[DESCENDING] ? ~(pf_bits)0 : 0;
  pf_item *a = (pf_item *)(buf[2] + worker * arg[WORKER_BYTES]), *b = a + n;
  for (int64_t row = begin; row < end; row++) {
    const PF_T *x = (const PF_T *)buf[0] + row * n;
    int64_t *out = (int64_t *)buf[1] + row * take;
    pf_item *sorted;
    if (take <= n / PF_HEAP_SHARE) {
      /* the root is the last of the best so far */
      for (int64_t i = 0; i < take; i++) a[i] = PF_ITEM(pf_order(x[i], flip), i);
      pf_item *best = pf_sort(a, b, take);
      for (int64_t i = 0; i < take; i++) b[take + i] = best[take - 1 - i]; /* falling order is a heap */
      pf_item *heap = b + take;
      for (int64_t from = take; take && from < n; from += PF_BLOCK) {
        const int64_t to = n - from < PF_BLOCK ? n : from + PF_BLOCK;
        pf_bits keys[PF_BLOCK], least = ~(pf_bits)0;
        for (int64_t i = from; i < to; i++) {
          const pf_bits key = keys[i - from] = pf_order(x[i], flip);
          least = key < least ? key : least;
        }
        if (least >= PF_RANK_OF(heap[0])) continue; /* a block of losers, as most are; of equals the first one stays */
        for (int64_t i = from; i < to; i++)
          if (keys[i - from] < PF_RANK_OF(heap[0])) pf_sift(heap, take, PF_ITEM(keys[i - from], i));
      }
      /* by popping it: pf_sort keeps equal keys as they lie, and in a heap they lie in any order */
      for (int64_t last = take - 1; last > 0; last--) {
        const pf_item x = heap[last];
        heap[last] = heap[0];
        pf_sift(heap, last, x);
      }
      sorted = heap;
    } else {
      for (int64_t i = 0; i < n; i++) a[i] = PF_ITEM(pf_order(x[i], flip), i);
      sorted = pf_sort(a, b, n);
    }
    for (int64_t i = 0; i < take; i++) out[i] = PF_POSITION(sorted[i]);
  }
}
