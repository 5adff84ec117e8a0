/* Matrix instructions: MFMA of CDNA and WMMA of RDNA. EXEC does not matter to them. */
#include "matrix_wmma.h"
#include "matrix_wmma12.h"
#include "matrix_mfma.h"
#include "matrix_mfma90a.h"

#define ENTRY(NAME, D, C, ...) {#NAME, NAME, #D, "U32 U32 " #C},
const Entry MATRIX_TABLE[] = {
  WMMA_INSTRUCTIONS(ENTRY) WMMA12_INSTRUCTIONS(ENTRY)
#if PF_LANES == 64
  MFMA_INSTRUCTIONS(ENTRY) MFMA90A_INSTRUCTIONS(ENTRY)
#endif
};
const int MATRIX_COUNT = sizeof MATRIX_TABLE / sizeof *MATRIX_TABLE;
