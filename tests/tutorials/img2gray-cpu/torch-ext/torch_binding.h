#pragma once

#include <torch/torch.h>

void img2gray_cuda(torch::Tensor const &input, torch::Tensor &output);
void img2gray_cpu(torch::Tensor const &input, torch::Tensor &output);
