#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void bias_gelu_kernel(float* out, const float* bias, int rows, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * columns) {
    float value = out[i] + bias[i % columns];
    out[i] = 0.5f * value * (1.0f + erff(value * 0.70710678f));
  }
}

torch::Tensor fused_linear_gelu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  auto out = at::mm(x, weight.t());
  int rows = out.size(0);
  int columns = out.size(1);
  int threads = 256;
  int blocks = (rows * columns + threads - 1) / threads;
  bias_gelu_kernel<<<blocks, threads>>>(out.data_ptr<float>(), bias.data_ptr<float>(), rows, columns);
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("fused_linear_gelu", &fused_linear_gelu, "Linear and GELU (CUDA)");
}
