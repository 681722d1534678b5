#include <cuda_runtime.h>

__global__ void relu_kernel(const float* a, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = a[i] > 0.0f ? a[i] : 0.0f;
  }
}

void launch_relu(const float* a, float* out, int n) {
  int threads = 256;
  relu_kernel<<<(n + threads - 1) / threads, threads>>>(a, out, n);
}
