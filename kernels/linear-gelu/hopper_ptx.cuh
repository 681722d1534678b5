// SPDX-License-Identifier: Apache-2.0
//
// The instructions of compute capability 9.0a that CUDA C++ has no names for: mbarriers, tensor
// copies (TMA), warp-group matrix products (wgmma), stmatrix. One function an instruction.

#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace linear_gelu::ptx {

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

// Rows of 128 bytes in shared memory, swizzled by 128 bytes, as the tensor copies write them: 8
// rows are an atom of 1024 bytes. 16-byte units in the address and the stride.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | (uint64_t{1} << 16) |
         (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 62);
}

__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
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

// d += A B^T (or = without `add`) for 64 rows of A and kN rows of B, 32 bytes of each row. d[4 j +
// i] are columns 8 j + 2 (lane % 4) + (i & 1), row 16 warp + lane / 4 + 8 (i >> 1).
template <class T, int kN>
struct Product;

#define LG_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LG_D16(i) LG_D4(i), LG_D4(i + 4), LG_D4(i + 8), LG_D4(i + 12)
#define LG_D64(i) LG_D16(i), LG_D16(i + 16), LG_D16(i + 32), LG_D16(i + 48)
#define LG_N32                                                                         \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
  "%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LG_N64                                                                           \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"   \
  "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43," \
  "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define LG_N128                                                                           \
  LG_N64                                                                                  \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84," \
  "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104," \
  "%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121," \
  "%122,%123,%124,%125,%126,%127"
#define LG_D32(i) LG_D16(i), LG_D16(i + 16)
#define LG_D128(i) LG_D64(i), LG_D64(i + 64)
#define LG_PRODUCT(type, n, shape, names, operands, a, b, add, rest)                             \
  template <>                                                                                    \
  struct Product<type, n> {                                                                      \
    static __device__ __forceinline__ void run(float (&d)[n / 2], uint64_t left, uint64_t right, \
                                               int more) {                                       \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add                                       \
                   ", 0;\n"                                                                      \
                   "wgmma.mma_async.sync.aligned." shape " {" names "}, " a ", " b               \
                   ", p, 1, 1" rest ";\n}"                                                       \
                   : operands(0)                                                                 \
                   : "l"(left), "l"(right), "r"(more));                                          \
    }                                                                                            \
  };

LG_PRODUCT(__nv_bfloat16, 256, "m64n256k16.f32.bf16.bf16", LG_N128, LG_D128, "%128", "%129", "%130",
           ", 0, 0")
LG_PRODUCT(__half, 256, "m64n256k16.f32.f16.f16", LG_N128, LG_D128, "%128", "%129", "%130",
           ", 0, 0")
LG_PRODUCT(float, 256, "m64n256k8.f32.tf32.tf32", LG_N128, LG_D128, "%128", "%129", "%130", "")
LG_PRODUCT(__nv_bfloat16, 128, "m64n128k16.f32.bf16.bf16", LG_N64, LG_D64, "%64", "%65", "%66",
           ", 0, 0")
LG_PRODUCT(__half, 128, "m64n128k16.f32.f16.f16", LG_N64, LG_D64, "%64", "%65", "%66", ", 0, 0")
LG_PRODUCT(float, 128, "m64n128k8.f32.tf32.tf32", LG_N64, LG_D64, "%64", "%65", "%66", "")
LG_PRODUCT(__nv_bfloat16, 64, "m64n64k16.f32.bf16.bf16", LG_N32, LG_D32, "%32", "%33", "%34",
           ", 0, 0")
LG_PRODUCT(__half, 64, "m64n64k16.f32.f16.f16", LG_N32, LG_D32, "%32", "%33", "%34", ", 0, 0")
LG_PRODUCT(float, 64, "m64n64k8.f32.tf32.tf32", LG_N32, LG_D32, "%32", "%33", "%34", "")

#undef LG_PRODUCT
#undef LG_D128
#undef LG_D64
#undef LG_D32
#undef LG_D16
#undef LG_D4
#undef LG_N128
#undef LG_N64
#undef LG_N32

}  // namespace linear_gelu::ptx
