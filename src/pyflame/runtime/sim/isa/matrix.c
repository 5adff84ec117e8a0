/* Matrix instructions: MFMA of CDNA and WMMA of RDNA. EXEC does not matter to them. */
#include "matrix_wmma.h"
#include "matrix_wmma12.h"
#include "matrix_mfma.h"
#include "matrix_mfma90a.h"
#include "matrix_mfma950.h"

#define ENTRY(NAME, D, C, ...) {#NAME, NAME, #D, "U32 U32 " #C},
const Entry MATRIX_TABLE[] = {
  WMMA_INSTRUCTIONS(ENTRY) WMMA12_INSTRUCTIONS(ENTRY)
#if PF_LANES == 64
  MFMA_INSTRUCTIONS(ENTRY) MFMA90A_INSTRUCTIONS(ENTRY) MFMA950_INSTRUCTIONS(ENTRY)
#define SCALED(NAME, ...) {#NAME, NAME, "F32", "U32 U32 F32 F32 F32"},
  MFMA950_SCALED(SCALED)
#endif
};
const int MATRIX_COUNT = sizeof MATRIX_TABLE / sizeof *MATRIX_TABLE;
