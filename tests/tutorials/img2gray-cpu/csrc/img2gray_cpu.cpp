#include <cstdint>
#include <torch/torch.h>

void img2gray_cpu(torch::Tensor const &input, torch::Tensor &output) {
    TORCH_CHECK(input.scalar_type() == torch::kByte, "input must be uint8");
    TORCH_CHECK(input.dim() == 3 && input.size(2) == 3, "input must be [H, W, 3]");

    const uint8_t* in = input.data_ptr<uint8_t>();
    uint8_t* out = output.data_ptr<uint8_t>();
    for (int64_t i = 0; i < input.size(0) * input.size(1); ++i) {
        out[i] = static_cast<uint8_t>(0.21f * in[3 * i] + 0.72f * in[3 * i + 1] + 0.07f * in[3 * i + 2]);
    }
}
