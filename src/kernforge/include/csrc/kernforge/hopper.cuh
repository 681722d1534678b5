// SPDX-License-Identifier: Apache-2.0
//
// The instructions of compute capability 9.0a that CUDA C++ has no names for - mbarriers, tensor
// copies (TMA), warp-group matrix products (wgmma), clusters, registers by warp group, stmatrix -
// one function an instruction, and the tensor maps that the copies take. For files with
// cuda-capabilities = ["9.0a"]; nothing is linked against the driver.
//
// A tile in shared memory has rows of 128 bytes that are swizzled by 128 bytes and begins on 1024
// bytes: what a map of `encode_map` copies and `descriptor` describes.
//
//   CUtensorMap map;                        // on the host: boxes of 128 rows of 64 halves
//   kernforge::hopper::encode_map(&map, kernforge::hopper::kMapType<__half>, 2, x, rows, columns,
//                                 stride, 128);
//   mbarrier_expect(barrier, 128 * 128);    // in one thread
//   load_box(tile, &map, column, row, barrier);
//   mbarrier_wait(barrier, parity);         // in the threads of a warp group
//   products_fence();
//   Product<__half, __half, 256>::run(sums, descriptor(left), descriptor(right), add);
//   products_commit();
//   products_wait<0>();

#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace kernforge::hopper {

// Elements of which only the bits matter here; <cuda_fp8.h> has what converts.
struct float8_e4m3 {
  uint8_t bits;
};
struct float8_e5m2 {
  uint8_t bits;
};

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// Named barriers; id 0 is __syncthreads.
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// mbarriers, by their address in shared memory

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// At the same address in block `rank` of the cluster. What it orders are reads by wgmma, which have
// ended; `.release.cluster` would be a fence of the whole GPU (MEMBAR.ALL.GPU).
__device__ __forceinline__ void mbarrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Bytes side by side, of any architecture from 9.0 on: a multiple of 16, from and to multiples
// of 16.
__device__ __forceinline__ void load_bytes(uint32_t to, const void* from, uint32_t bytes,
                                           uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// tensor copies: coordinates are the column and the row of the box's first element

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap* map, int column, int row,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// To the same address in every block of the cluster whose bit in `blocks` is set.
__device__ __forceinline__ void load_box_for(uint16_t blocks, uint32_t to, const CUtensorMap* map,
                                             int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap* map, int column, int row,
                                          uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(column), "r"(row), "r"(from)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// The same of maps with a third dimension.
__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap* map, int column, int row,
                                         int matrix, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void load_box_for(uint16_t blocks, uint32_t to, const CUtensorMap* map,
                                             int column, int row, int matrix, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(barrier), "h"(blocks)
      : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap* map, int column, int row, int matrix,
                                          uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
      "r"(column), "r"(row), "r"(matrix), "r"(from)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Of a map with a third dimension, to the L2 cache alone.
__device__ __forceinline__ void prefetch_box(const CUtensorMap* map, int column, int row,
                                             int matrix) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map),
               "r"(column), "r"(row), "r"(matrix)
               : "memory");
}
// Until all but the last `kPending` stores of this thread have read their shared memory.
template <int kPending>
__device__ __forceinline__ void stores_have_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// Ordinary stores to shared memory before it are seen by tensor copies after it.
__device__ __forceinline__ void fence_shared_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// matrix products of a warp group

__device__ __forceinline__ void products_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Nothing that reads or writes `values` moves across it.
template <int kCount>
__device__ __forceinline__ void pin(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// How an operand of a product lies in shared memory. kDepth: a row of the tile is 128 bytes of the
// depth of one row of the operand. kRows: it is 128 bytes of rows (64 halves) at one depth, and the
// next 64 rows of the operand are a block of their own; 16-bit types alone.
enum class Major { kDepth, kRows };

// Of a tile whose rows go along the depth: 8 of its rows are an atom of 1024 bytes. The next 32
// bytes of the depth are 2 more, the next 64 rows 512 more: units of 16 bytes.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | (uint64_t{1} << 16) |
         (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 62);
}
// Of Major::kRows, where a block of 64 rows of the operand has `kBytes` (128 for each number of the
// depth). The next 16 of the depth are 128 more, the next 64 rows kBytes / 16 more.
template <int kBytes>
__device__ __forceinline__ uint64_t descriptor_by_rows(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | (uint64_t{kBytes >> 4} << 16) |
         (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 62);
}

__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
// What store_matrices has stored, back into the same registers.
__device__ __forceinline__ void load_matrices(uint32_t from, uint32_t& a, uint32_t& b, uint32_t& c,
                                              uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void store_pair(uint32_t to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ float2 load_pair(uint32_t from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from));
  return pair;
}

// d += A B^T (or = without `add`) for 64 rows of A and kN rows of B, 32 bytes of the depth; float
// is multiplied as tf32. d[4 j + i] are columns 8 j + 2 (lane % 4) + (i & 1), row 16 warp + lane /
// 4 + 8 (i >> 1). kN is 16, 32, 64, 96, 128, 192 or 256.
template <class Left, class Right, int kN, Major kLeft = Major::kDepth,
          Major kRight = Major::kDepth>
struct Product;

#define KERNFORGE_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KERNFORGE_D8(i) KERNFORGE_D4(i), KERNFORGE_D4(i + 4)
#define KERNFORGE_D16(i) KERNFORGE_D8(i), KERNFORGE_D8(i + 8)
#define KERNFORGE_D32(i) KERNFORGE_D16(i), KERNFORGE_D16(i + 16)
#define KERNFORGE_D48(i) KERNFORGE_D32(i), KERNFORGE_D16(i + 32)
#define KERNFORGE_D64(i) KERNFORGE_D32(i), KERNFORGE_D32(i + 32)
#define KERNFORGE_D96(i) KERNFORGE_D64(i), KERNFORGE_D32(i + 64)
#define KERNFORGE_D128(i) KERNFORGE_D64(i), KERNFORGE_D64(i + 64)
#define KERNFORGE_N8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define KERNFORGE_N16 \
  KERNFORGE_N8        \
  ",%8,%9,%10,%11,%12,%13,%14,%15"
#define KERNFORGE_N32 \
  KERNFORGE_N16       \
  ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define KERNFORGE_N48 \
  KERNFORGE_N32       \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define KERNFORGE_N64 \
  KERNFORGE_N48       \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define KERNFORGE_N96                                                                 \
  KERNFORGE_N64                                                                       \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83," \
  "%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define KERNFORGE_N128                                                                 \
  KERNFORGE_N96                                                                        \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112," \
  "%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// Operands after the sums: %(a) left, %(b) right, %(add), then the two major modes of 16-bit types.
#define KERNFORGE_PRODUCT(n, count, type, k, a, b, add)                                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add                                            \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned.m64n" #n "k" #k ".f32." type " {" KERNFORGE_N##count \
               "}, " a ", " b ", p, 1, 1;\n}"                                                     \
               : KERNFORGE_D##count(0)                                                            \
               : "l"(left), "l"(right), "r"(more))
#define KERNFORGE_PRODUCT_OF_HALVES(n, count, type, a, b, add, of_a, of_b)                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add                                        \
               ", 0;\n"                                                                       \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type " {" KERNFORGE_N##count \
               "}, " a ", " b ", p, 1, 1, " of_a ", " of_b ";\n}"                             \
               : KERNFORGE_D##count(0)                                                        \
               : "l"(left), "l"(right), "r"(more), "n"(kLeft == Major::kRows),                \
                 "n"(kRight == Major::kRows))
#define KERNFORGE_PRODUCTS(n, count, a, b, add, of_a, of_b)                                      \
  template <class Left, class Right, Major kLeft, Major kRight>                                  \
  struct Product<Left, Right, n, kLeft, kRight> {                                                \
    static __device__ __forceinline__ void run(float (&d)[count], uint64_t left, uint64_t right, \
                                               int more) {                                       \
      static_assert(sizeof(Left) == sizeof(Right));                                              \
      static_assert(sizeof(Left) == 2 || (kLeft == Major::kDepth && kRight == Major::kDepth),    \
                    "only products of 16-bit types take operands by rows");                      \
      if constexpr (std::is_same_v<Left, __nv_bfloat16>) {                                       \
        KERNFORGE_PRODUCT_OF_HALVES(n, count, "bf16.bf16", a, b, add, of_a, of_b);               \
      } else if constexpr (std::is_same_v<Left, __half>) {                                       \
        KERNFORGE_PRODUCT_OF_HALVES(n, count, "f16.f16", a, b, add, of_a, of_b);                 \
      } else if constexpr (std::is_same_v<Left, float>) {                                        \
        KERNFORGE_PRODUCT(n, count, "tf32.tf32", 8, a, b, add);                                  \
      } else if constexpr (std::is_same_v<Left, float8_e4m3>) {                                  \
        if constexpr (std::is_same_v<Right, float8_e4m3>) {                                      \
          KERNFORGE_PRODUCT(n, count, "e4m3.e4m3", 32, a, b, add);                               \
        } else {                                                                                 \
          KERNFORGE_PRODUCT(n, count, "e4m3.e5m2", 32, a, b, add);                               \
        }                                                                                        \
      } else if constexpr (std::is_same_v<Right, float8_e4m3>) {                                 \
        KERNFORGE_PRODUCT(n, count, "e5m2.e4m3", 32, a, b, add);                                 \
      } else {                                                                                   \
        KERNFORGE_PRODUCT(n, count, "e5m2.e5m2", 32, a, b, add);                                 \
      }                                                                                          \
    }                                                                                            \
  };
KERNFORGE_PRODUCTS(16, 8, "%8", "%9", "%10", "%11", "%12")
KERNFORGE_PRODUCTS(32, 16, "%16", "%17", "%18", "%19", "%20")
KERNFORGE_PRODUCTS(64, 32, "%32", "%33", "%34", "%35", "%36")
KERNFORGE_PRODUCTS(96, 48, "%48", "%49", "%50", "%51", "%52")
KERNFORGE_PRODUCTS(128, 64, "%64", "%65", "%66", "%67", "%68")
KERNFORGE_PRODUCTS(192, 96, "%96", "%97", "%98", "%99", "%100")
KERNFORGE_PRODUCTS(256, 128, "%128", "%129", "%130", "%131", "%132")

#undef KERNFORGE_PRODUCTS
#undef KERNFORGE_PRODUCT_OF_HALVES
#undef KERNFORGE_PRODUCT
#undef KERNFORGE_N8
#undef KERNFORGE_N16
#undef KERNFORGE_N32
#undef KERNFORGE_N48
#undef KERNFORGE_N64
#undef KERNFORGE_N96
#undef KERNFORGE_N128
#undef KERNFORGE_D128
#undef KERNFORGE_D96
#undef KERNFORGE_D64
#undef KERNFORGE_D48
#undef KERNFORGE_D32
#undef KERNFORGE_D16
#undef KERNFORGE_D8
#undef KERNFORGE_D4

// tensor maps, on the host

template <class T>
constexpr CUtensorMapDataType kMapType =
    std::is_same_v<T, __half>          ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    : std::is_same_v<T, __nv_bfloat16> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    : std::is_same_v<T, float>         ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                       : CU_TENSOR_MAP_DATA_TYPE_UINT8;

// The driver's function, or nullptr where it has none.
inline auto map_encoder() {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess) {
      found = nullptr;
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return encode;
}

// A matrix whose rows lie side by side in memory, `stride` elements of `size` bytes from one to the
// next, in boxes of `box_rows` rows and 128 bytes; what is outside of it is read as 0. With
// `matrices` there is a third dimension, `matrix_stride` elements from one matrix to the next, of
// which a box has one. False where it cannot be described: `data` and the strides are multiples of
// 16 bytes, a box has at most 256 rows. `promotion`: how many bytes the L2 cache reads at a time.
inline bool encode_map(CUtensorMap* map, CUtensorMapDataType type, int size, const void* data,
                       int64_t rows, int64_t columns, int64_t stride, int box_rows,
                       int64_t matrices = 0, int64_t matrix_stride = 0,
                       CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(matrices)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * size,
                                static_cast<cuuint64_t>(matrix_stride) * size};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(128 / size), static_cast<cuuint32_t>(box_rows),
                            1};
  const cuuint32_t steps[] = {1, 1, 1};
  const auto encoder = map_encoder();
  return encoder != nullptr &&
         encoder(map, type, matrices > 0 ? 3 : 2, const_cast<void*>(data), sizes, strides, box,
                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace kernforge::hopper
