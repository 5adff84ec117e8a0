/* Kernels whose counts are known: see test_trace.py. */
extern "C" __global__ void copy(const float* x, float* out, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = x[i * stride];  // copied
}
extern "C" __global__ void banks(float* out, int stride) {
  __shared__ volatile float room[64 * 33];
  room[threadIdx.x * stride] = threadIdx.x;  // stored
  __syncthreads();
  out[threadIdx.x] = room[threadIdx.x * stride];  // loaded
}
extern "C" __global__ void split(int* out, int mask, int n) {
  int x = threadIdx.x;
  if (threadIdx.x & mask) {  // decided
#pragma unroll 1
    for (int i = 0; i < n; i++) __builtin_amdgcn_s_sleep(1);  // slept
    x = atomicAdd(&out[threadIdx.x], 1);
  }
  out[128 * blockIdx.x + 128 + threadIdx.x] = x;
}
extern "C" __global__ void race(float* out) {
  __shared__ float room[256];
  room[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = room[255 - threadIdx.x];
}
extern "C" __global__ void dynamic(const float* x, float* out) {
  extern __shared__ float room[];
  room[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}
