#pragma once

#include <torch/torch.h>

torch::Tensor rgb_to_gray(const torch::Tensor& image);
torch::Tensor normalize_volume(const torch::Tensor& volume, double max_value);
