#include <cuda_runtime.h>

__global__ void fused_relu_scale_kernel(const float* in, float* out, int n, float scale) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = in[i];
    out[i] = v > 0.0f ? v * scale : 0.0f;
  }
}

extern "C" void launch_fused_relu_scale(float* in, float* out, int n, float scale) {
  int threads = 256;
  int blocks = (n + threads - 1) / threads;
  fused_relu_scale_kernel<<<blocks, threads>>>(in, out, n, scale);
}
