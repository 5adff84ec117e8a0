/* Vector instructions on integers and bits. vector_integer.def says what each one does. */
#include "vector.h"

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#define MED(x, y, z) MAX(MIN(x, y), MIN(MAX(x, y), z))

static inline u32 low24(u32 x) { return x & 0xffffff; }
static inline i32 signed24(i32 x) { return (i32)((u32)x << 8) >> 8; }
static inline u32 to_u32(u64 x) { return x >> 32 ? ~0u : (u32)x; }
static inline i32 to_i32(i64 x) { return x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : (i32)x; }
static inline i16 to_i16(i64 x) { return x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : (i16)x; }
static inline u8 to_u8(i16 x) { return x < 0 ? 0 : x > 255 ? 255 : (u8)x; }
static inline i8 to_i8(i32 x) { return x < INT8_MIN ? INT8_MIN : x > INT8_MAX ? INT8_MAX : (i8)x; }
static inline u8 clamp_u8(i32 x) { return x < 0 ? 0 : x > 255 ? 255 : (u8)x; }
static inline u32 apart(u32 x, u32 y) { return x > y ? x - y : y - x; }

static inline u32 reversed(u32 x) {
  x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
  x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(x);
}
/* v_perm_b32: a byte of eight, or the sign of an odd one spread out, or 0, or 255 */
static inline u32 picked_byte(u64 x, u32 select) {
  const u32 byte = (u32)(x >> 8 * (select & 7)) & 255, sign = x >> (16 * (select & 3) + 15) & 1 ? 255 : 0;
  const u32 rest = select == 12 ? 0 : 255, upper = select < 12 ? sign : rest;
  return select < 8 ? byte : upper;
}
/* The sum of absolute differences of four bytes; masked: those of bytes where b is not 0. */
static inline u32 sad8(u32 a, u32 b, int masked) {
  u32 sum = 0;
  for (int i = 0; i < 32; i += 8) {
    const u32 x = a >> i & 255, y = b >> i & 255;
    sum += masked && !y ? 0 : apart(x, y);
  }
  return sum;
}
static inline u64 quad_sad(u64 a, u32 b, u64 c, int masked) {
  u64 d = 0;
  for (int i = 0; i < 4; i++)
    d |= (u64)(u16)(sad8((u32)(a >> 8 * i), b, masked) + (u32)(c >> 16 * i & 0xffff)) << 16 * i;
  return d;
}

#include "vector_integer.def"
#include "rows.h"
const Entry INTEGER_TABLE[] = {
#include "vector_integer.def"
};
const int INTEGER_COUNT = sizeof INTEGER_TABLE / sizeof *INTEGER_TABLE;
