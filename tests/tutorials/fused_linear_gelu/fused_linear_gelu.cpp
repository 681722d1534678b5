#include <torch/extension.h>
#include <cmath>

torch::Tensor fused_linear_gelu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  TORCH_CHECK(x.device().is_cpu(), "x must be a CPU tensor");
  auto out = at::addmm(bias, x, weight.t());
  float* data = out.data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    data[i] = 0.5f * data[i] * (1.0f + std::erf(data[i] * 0.70710678f));
  }
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("fused_linear_gelu", &fused_linear_gelu, "Linear and GELU (CPU)");
}
