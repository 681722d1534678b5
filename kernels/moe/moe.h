// SPDX-License-Identifier: Apache-2.0
//
// A mixture of experts: what the launchers, the CPU path and the binding share. No torch header.

#pragma once

#include <cstdint>

#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace moe {

using kernforge::DType;

// Experts that a router can choose among, and that a token can have.
constexpr int kMostExperts = 1024, kMostTop = 32;

// How `logits` [tokens, experts] become the experts of each token and their weights, both
// [tokens, top]; all matrices without gaps. `bias` [experts] of float or nullptr is added to a
// score to choose by, and is not in the weight. Of `groups` groups of experts only those are open
// whose two best scores have the `top_groups` largest sums.
struct Route {
  const void* logits;
  const float* bias;
  void* weights;
  int32_t* ids;
  int64_t tokens;
  int experts, top, groups, top_groups;
  bool sigmoid, normalize;  // scores by sigmoid instead of softmax; weights that add up to `scale`
  float scale;
};

// y[t] = sum over j of weights[t, j] * w2[e] (silu(gate) * up) with e = ids[t, j], gate and up the
// two halves of w1[e] x[t]. x, y [tokens, width], w1 [experts, 2 inner, width], w2
// [experts, width, inner], weights and ids [tokens, top], all without gaps. An id outside of the
// experts adds nothing. With factors w1 and w2 are bytes, each an e4m3, and are multiplied by a
// factor for each block of 128 by 128: [experts, parts of 2 inner, parts of width] and
// [experts, parts of width, parts of inner].
constexpr int64_t kFactorBlock = 128;
struct Experts {
  const void *x, *w1, *w2;
  const void* weights;
  const int32_t* ids;
  void* y;
  int64_t tokens, width, inner, experts, top;
  const float *w1_scale = nullptr, *w2_scale = nullptr;
  // For a gradient, else nullptr; not with factors. Gate and up of the rows of `Sort`, whose
  // results are below. Where x is empty nothing is written; rows of no assignment have any values.
  void* both = nullptr;  // [rows, 2 inner]
  int32_t *positions = nullptr, *assignments = nullptr, *ends = nullptr;
};

// The gradient. An assignment is a token and one of its experts. They are sorted by expert to rows;
// an expert's rows begin on a multiple of 8, so that a tensor copy of 8 rows writes none of the
// next expert.
constexpr int kPad = 8;
KERNFORGE_HOST_DEVICE inline int64_t rows_of(int64_t assignments, int64_t experts) {
  const int64_t hit = assignments < experts ? assignments : experts;
  return (assignments + (kPad - 1) * hit + kPad - 1) / kPad * kPad;
}

struct Sort {
  const int32_t* ids;    // [tokens, top]
  int32_t* positions;    // [tokens, top]: the row of each assignment, or -1
  int32_t* assignments;  // [rows]: the assignment of each row, or -1
  int32_t* ends;         // [experts]: the row after the last one, a multiple of 8
  int64_t tokens, experts, top;
};

// Rows of two matrices [tokens, width] to [rows, width]; zeros where there is no assignment.
struct Spread {
  const void *x, *grad;
  const int32_t* assignments;
  void *sorted_x, *sorted_grad;
  int64_t rows, width, top;
};

// Of h = silu(gate) * up, whose output w2 h is multiplied by a weight. `both` [rows, 2 inner] are
// gate and up, `plain` [rows, inner] is the gradient in h without the weight, dboth that in `both`,
// weighted = weight * h. dweights [rows], of double or float as `weights`, are the sums of h times
// plain. Zeros where there is no assignment, whatever is in `both` and `plain`.
struct GateBackward {
  const void *both, *plain, *weights;
  const int32_t* assignments;
  void *dboth, *weighted, *dweights;
  int64_t rows, inner;
};

// y[t] is the sum of the rows of token t, in the order of its experts; dweights [rows] become
// those of assignments, 0 where there is no row.
struct SumRows {
  const void *rows, *row_dweights;
  const int32_t* positions;
  void *y, *dweights;
  int64_t tokens, width, top;
};

// On a CPU: of tokens [begin, end); silu(gate) * up of rows that hold both.
void route_cpu(DType dtype, const Route& of, int64_t begin, int64_t end);
void gated_cpu(DType dtype, const void* both, void* out, int64_t rows, int64_t inner);
// A matrix of bytes, each an e4m3, times its factors, in the dtype.
void widen_cpu(DType dtype, const void* bytes, const float* factors, void* out, int64_t rows,
               int64_t columns);
// One row of y: the sum of rows[at[j]] with its weight, over those that are not negative.
void add_weighted_cpu(DType dtype, const void* rows, const int64_t* at, const void* weights,
                      void* y, int64_t top, int64_t width);

// The gradient's: all; of rows or tokens [begin, end).
void sort_cpu(const Sort& of);
void spread_cpu(DType dtype, const Spread& of, int64_t begin, int64_t end);
void gate_backward_cpu(DType dtype, const GateBackward& of, int64_t begin, int64_t end);
void sum_rows_cpu(DType dtype, const SumRows& of, int64_t begin, int64_t end);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)

// Memory that `experts_launch` takes, in bytes; addresses are multiples of 128, and so are the
// first two sizes.
struct Scratch {
  int64_t tables, tokens, inner;
};
Scratch scratch_of(DType dtype, const Experts& of);

// On the current device, asynchronously on the stream; the host waits for nothing. Not of double.
cudaError_t route_launch(DType dtype, const Route& of, cudaStream_t stream);
cudaError_t experts_launch(DType dtype, const Experts& of, void* tables, void* tokens, void* inner,
                           cudaStream_t stream);

// `tables` has sort_scratch bytes.
int64_t sort_scratch(const Sort& of);
cudaError_t sort_launch(const Sort& of, void* tables, cudaStream_t stream);
cudaError_t spread_launch(DType dtype, const Spread& of, cudaStream_t stream);
cudaError_t gate_backward_launch(DType dtype, const GateBackward& of, cudaStream_t stream);
cudaError_t sum_rows_launch(DType dtype, const SumRows& of, cudaStream_t stream);

#endif

}  // namespace moe
