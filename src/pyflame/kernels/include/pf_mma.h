/* Matrix tiles: 16x16 sums of products that a wave computes together, one interface over every GPU's instructions.
 *
 *   sums[i, j] += sum_k left[i, k] * right[j, k]      i, j < 16, k over 64 bytes of numbers
 *
 * LDS. An operand lies there as lines along k. A chunk of 64 bytes of a line (32 numbers of 16 bits, 64 bytes, 16 floats,
 * 8 doubles) is four pieces of 16 bytes; piece p of line l lies at pf_mma_place(l, p), which turns pieces so that eight
 * lines' pieces of one number, and the four pieces of two lines that are neighbours or four apart, fall on all banks: no
 * conflicts in any of the reads below nor in pf_mma_loop.h's writes, and no padding. Every lane reads whole pieces. Which k a lane holds is not what the vendor's layout says, but the
 * same for both operands, and a sum over k does not care.
 *
 * A tile's type T (pf_mma_f16, pf_mma_bf16, pf_mma_i8, pf_mma_f32, pf_mma_f64, pf_mma_tf32; kernels/matrix_cores.py says
 * which a target has; pf_plain_f16 .. are the same without matrix instructions) brings
 *   T::element, T::sum                  numbers in LDS, numbers of the sums
 *   T::left, T::right, T::sums          a lane's part of 16 lines of each operand and of the 16x16 sums
 *   T::STEPS                            parts of a chunk; a part is loaded and multiplied at once,
 *   T::TOGETHER                         and so many of them without a branch in between
 *   T::load(fragment, lines, step)      fragments from LDS; `lines`: where the chunk of the first of the 16 lines begins
 *   T::SLOTS, T::line(n)                pieces of a lane's part of `right`: the line of each,
 *   T::piece(n, step)                   which of its chunk it is,
 *   T::put(fragment, n, piece, step)    and how it is put there, of operands that do not come from LDS
 *   T::multiply(sums, left, right)      adds the products of a part
 *   T::SUMS, T::get(sums, s)            a lane's sums, which are those of
 *   T::row(s), T::col(s)                these rows and columns of the 16x16
 * All lanes of a wave do the same. No barriers in here.
 *
 * What limits it, per wave and chunk of 16-bit numbers, DOWN x ACROSS tiles: 16*16*64 flops for each tile, and
 * 1 KB from LDS for each of DOWN + ACROSS fragments (gfx11 reads each line twice). 4 x 4 tiles on gfx942 take 1024
 * clocks of a SIMD's matrix unit (2 MFMA of 32 clocks each tile) and 8 KB from LDS, 64 clocks; four SIMDs share LDS.
 */
#ifndef PF_MMA_H
#define PF_MMA_H
#include "pf_element.h"
#include "pf_tile.h"

enum { PF_MMA_CHUNK = 64, PF_MMA_PIECE = 16, PF_MMA_PIECES = 4, PF_MMA_EDGE = 16 };
typedef pf_vector<uint32_t, 4> pf_piece;

PF_FN int pf_lane_of_wave() { return pf_thread() % PF_WAVE; }
PF_FN int pf_mma_place(int line, int piece) {
  const int slot = line ^ (line >> 2 & 1);
  return slot * PF_MMA_PIECES + (piece ^ (slot >> 1 & 3));
}

/* A piece, or a part of it, as what an instruction takes. */
template <class V, class P> PF_FN V pf_mma_part(const P &piece, int number) {
  V out;
  __builtin_memcpy(&out, (const char *)&piece + number * (int)sizeof(V), sizeof(V));
  return out;
}

#include "pf_mma_plain.h"
#if defined(PF_EMULATE)
typedef pf_plain_f16 pf_mma_f16;
typedef pf_plain_bf16 pf_mma_bf16;
typedef pf_plain_i8 pf_mma_i8;
typedef pf_plain_f32 pf_mma_f32;
typedef pf_plain_f64 pf_mma_f64;
typedef pf_plain_f32 pf_mma_tf32;
#elif defined(__CUDACC__)
#include "pf_mma_nvidia.h"
#elif defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || \
    defined(__gfx950__)
#include "pf_mma_mfma.h"
#elif defined(__GFX11__) || defined(__GFX12__)
#include "pf_mma_wmma.h"
#endif

/* float32 with the mantissa of TF32, rounded to nearest: the hardware would cut it off. */
PF_FN float pf_to_tf32(float x) {
  const uint32_t bits = pf_bits_f32(x), high = bits & 0x7f800000u;
  return pf_from_bits_f32(high == 0x7f800000u ? bits : (bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u);
}

#endif
