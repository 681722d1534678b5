#include <torch/extension.h>

void launch_fused_relu_scale(float* in, float* out, int n, float scale);

torch::Tensor fused_relu_scale(torch::Tensor input, double scale) {
  TORCH_CHECK(input.is_cuda(), "input must be a CUDA tensor");
  TORCH_CHECK(input.is_contiguous(), "input must be contiguous");
  TORCH_CHECK(input.scalar_type() == torch::kFloat32, "input must be float32");
  auto output = torch::empty_like(input);
  launch_fused_relu_scale(
      input.data_ptr<float>(), output.data_ptr<float>(), input.numel(), static_cast<float>(scale));
  return output;
}

PYBIND11_MODULE(my_ops, m) {
  m.def("fused_relu_scale", &fused_relu_scale, "ReLU and scale in one kernel");
}
