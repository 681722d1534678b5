#include <cstdint>
#include <torch/torch.h>

__global__ void img2gray_kernel(const uint8_t* input, uint8_t* output, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;

    if (x < width && y < height) {
        int idx = (y * width + x) * 3;
        uint8_t r = input[idx];
        uint8_t g = input[idx + 1];
        uint8_t b = input[idx + 2];
        output[y * width + x] = static_cast<uint8_t>(0.21f * r + 0.72f * g + 0.07f * b);
    }
}

void img2gray_cuda(torch::Tensor const &input, torch::Tensor &output) {
    TORCH_CHECK(input.device().is_cuda(), "input must be a CUDA tensor");
    TORCH_CHECK(input.scalar_type() == torch::kByte, "input must be uint8");
    TORCH_CHECK(input.dim() == 3 && input.size(2) == 3, "input must be [H, W, 3]");

    const int height = input.size(0);
    const int width = input.size(1);

    dim3 blockSize(16, 16);
    dim3 gridSize((width + blockSize.x - 1) / blockSize.x,
                  (height + blockSize.y - 1) / blockSize.y);

    img2gray_kernel<<<gridSize, blockSize>>>(
        input.data_ptr<uint8_t>(), output.data_ptr<uint8_t>(), width, height);
}
