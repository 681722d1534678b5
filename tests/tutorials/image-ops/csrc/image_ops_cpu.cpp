#include <torch/torch.h>

torch::Tensor rgb_to_gray(const torch::Tensor& image) {
    TORCH_CHECK(image.is_cpu() && image.is_contiguous(), "image must be a contiguous CPU tensor");
    TORCH_CHECK(image.scalar_type() == torch::kUInt8 && image.size(-1) == 3, "image must be uint8 [H, W, 3]");
    auto gray = torch::empty({image.size(0), image.size(1)}, image.options());
    const uint8_t* in = image.data_ptr<uint8_t>();
    uint8_t* out = gray.data_ptr<uint8_t>();
    for (int64_t i = 0; i < gray.numel(); ++i) {
        out[i] = static_cast<uint8_t>(0.299f * in[3 * i] + 0.587f * in[3 * i + 1] + 0.114f * in[3 * i + 2]);
    }
    return gray;
}

torch::Tensor normalize_volume(const torch::Tensor& volume, double max_value) {
    TORCH_CHECK(volume.is_cpu() && volume.is_contiguous(), "volume must be a contiguous CPU tensor");
    TORCH_CHECK(volume.scalar_type() == torch::kUInt16, "volume must be uint16");
    auto out = torch::empty(volume.sizes(), volume.options().dtype(torch::kFloat32));
    const uint16_t* in = static_cast<const uint16_t*>(volume.data_ptr());
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < volume.numel(); ++i) {
        to[i] = static_cast<float>(in[i]) / (float)max_value;
    }
    return out;
}
