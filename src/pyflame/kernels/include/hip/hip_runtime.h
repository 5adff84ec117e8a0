/* For kernels that include <hip/hip_runtime.h> by habit: pf_hip.h has been read before them and brings what there is. */
#include "pf_hip.h"
