#include <cuda_runtime.h>

__global__ void vector_add_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = a[i] + b[i];
  }
}

void launch_vector_add(const float* a, const float* b, float* out, int n) {
  int threads = 256;
  vector_add_kernel<<<(n + threads - 1) / threads, threads>>>(a, b, out, n);
}
