// SPDX-License-Identifier: Apache-2.0
//
// The launcher against the CPU path, without torch, for compute-sanitizer: every buffer is an
// allocation of its own that ends with the picture and is not initialised before it, so that a byte
// too far is seen: behind by memcheck, before by initcheck.
//
//   nvcc -std=c++17 -arch=native -o driver tests/driver.cu img2gray.cu img2gray_cpu.cpp
//
//   compute-sanitizer --tool memcheck --error-exitcode 1 ./driver
//
// and likewise with racecheck and initcheck.

#include <cstdio>
#include <vector>

#include "../img2gray.h"

namespace {

using img2gray::Layout;
using img2gray::Weights;

int failures = 0;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  ++failures;
}

// Image and result, each so many bytes into an allocation that ends with its last byte.
void run(const Layout& layout, int64_t in_size, int64_t out_size, int in_skip, int out_skip,
         Weights weights) {
  std::vector<uint8_t> in(in_size), want(out_size, 0xA5), got(out_size);
  uint32_t state = static_cast<uint32_t>(in_size * 31 + in_skip);
  for (uint8_t& v : in) v = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  img2gray::gray_cpu(in.data(), want.data(), layout, weights, 0, layout.pixels());

  uint8_t *d_in = nullptr, *d_out = nullptr;
  check(cudaMalloc(&d_in, in_size + in_skip), "allocate the image");
  check(cudaMalloc(&d_out, out_size + out_skip), "allocate the result");
  check(cudaMemset(d_out, 0xA5, out_size + out_skip), "poison the result");
  check(cudaMemcpy(d_in + in_skip, in.data(), in_size, cudaMemcpyHostToDevice), "copy the image");
  check(img2gray::gray_launch(d_in + in_skip, d_out + out_skip, layout, weights, nullptr),
        "launch");
  check(cudaMemcpy(got.data(), d_out + out_skip, out_size, cudaMemcpyDeviceToHost),
        "copy the result");
  check(cudaFree(d_in), "free the image");
  check(cudaFree(d_out), "free the result");
  if (got != want) {
    std::printf("differs: %lld x %lld x %lld, %d and %d bytes in\n",
                static_cast<long long>(layout.batch), static_cast<long long>(layout.height),
                static_cast<long long>(layout.width), in_skip, out_skip);
    ++failures;
  }
}

}  // namespace

int main() {
  for (const Weights weights : {Weights::kDefault, Weights::kBt601}) {
    for (int skip = 0; skip < 256; skip += 5) {  // 52 of the 256 pairs of alignments
      const int i = skip % 16, o = skip / 16;
      for (const int64_t width : {1, 5, 16, 17, 31, 33, 64, 4099}) {
        run({1, 1, width, 0, width * 3, 3, 1, 0, width}, width * 3, width, i, o, weights);
      }
      // Two pictures of three rows, with gaps between rows and between pictures.
      const int64_t w = 37, in_row = 3 * w + 5, out_row = w + 2;
      run({2, 3, w, 4 * in_row, in_row, 3, 1, 3 * out_row, out_row}, 7 * in_row - 5,
          6 * out_row - 2, i, o, weights);
      // Planes.
      run({1, 9, w, 0, w, 1, 9 * w, 0, w}, 27 * w, 9 * w, i, o, weights);
    }
  }
  std::printf(failures == 0 ? "all equal\n" : "%d failures\n", failures);
  return failures != 0;
}
