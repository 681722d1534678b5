#include <torch/torch.h>
#include <cuda_runtime.h>

// One pixel is one uchar3.
__global__ void rgb_to_gray_kernel(const uchar3* rgb, unsigned char* gray, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uchar3 p = rgb[i];
        gray[i] = static_cast<unsigned char>(0.299f * p.x + 0.587f * p.y + 0.114f * p.z);
    }
}

// A 12-bit volume in uint16: 4095 becomes 1.
__global__ void normalize_volume_kernel(const uint16_t* volume, float* out, int64_t n, float max_value) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = static_cast<float>(volume[i]) / max_value;
    }
}

torch::Tensor rgb_to_gray(const torch::Tensor& image) {
    TORCH_CHECK(image.is_cuda() && image.is_contiguous(), "image must be a contiguous CUDA tensor");
    TORCH_CHECK(image.scalar_type() == torch::kUInt8 && image.size(-1) == 3, "image must be uint8 [H, W, 3]");
    auto gray = torch::empty({image.size(0), image.size(1)}, image.options());
    int n = gray.numel();
    int threads = 256;
    rgb_to_gray_kernel<<<(n + threads - 1) / threads, threads>>>(
        reinterpret_cast<const uchar3*>(image.data_ptr<uint8_t>()), gray.data_ptr<uint8_t>(), n);
    return gray;
}

torch::Tensor normalize_volume(const torch::Tensor& volume, double max_value) {
    TORCH_CHECK(volume.is_cuda() && volume.is_contiguous(), "volume must be a contiguous CUDA tensor");
    TORCH_CHECK(volume.scalar_type() == torch::kUInt16, "volume must be uint16");
    auto out = torch::empty(volume.sizes(), volume.options().dtype(torch::kFloat32));
    int64_t n = volume.numel();
    int threads = 256;
    normalize_volume_kernel<<<(n + threads - 1) / threads, threads>>>(
        static_cast<const uint16_t*>(volume.data_ptr()), out.data_ptr<float>(), n, (float)max_value);
    return out;
}
