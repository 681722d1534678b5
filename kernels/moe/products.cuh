// SPDX-License-Identifier: Apache-2.0
//
// Products by wgmma of as many columns as tiles of tokens have and kernforge/hopper.cuh has not.

#pragma once

#include "kernforge/hopper.cuh"

namespace kernforge::hopper {

#define MOE_AT(i)                                                                             \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define MOE_D8 MOE_AT(0)
#define MOE_D16 MOE_D8, MOE_AT(8)
#define MOE_D24 MOE_D16, MOE_AT(16)
#define MOE_D32 MOE_D24, MOE_AT(24)
#define MOE_D40 MOE_D24, MOE_AT(24), MOE_AT(32)
#define MOE_D56 MOE_D40, MOE_AT(40), MOE_AT(48)
#define MOE_D72 MOE_D56, MOE_AT(56), MOE_AT(64)
#define MOE_D80 MOE_D72, MOE_AT(72)
#define MOE_N8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define MOE_N16 \
  MOE_N8        \
  ",%8,%9,%10,%11,%12,%13,%14,%15"
#define MOE_N24 \
  MOE_N16       \
  ",%16,%17,%18,%19,%20,%21,%22,%23"
#define MOE_N32 \
  MOE_N24       \
  ",%24,%25,%26,%27,%28,%29,%30,%31"
#define MOE_N40                      \
  MOE_N24                            \
  ",%24,%25,%26,%27,%28,%29,%30,%31" \
  ",%32,%33,%34,%35,%36,%37,%38,%39"
#define MOE_N56                      \
  MOE_N40                            \
  ",%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55"
#define MOE_N72                      \
  MOE_N56                            \
  ",%56,%57,%58,%59,%60,%61,%62,%63" \
  ",%64,%65,%66,%67,%68,%69,%70,%71"
#define MOE_N80 \
  MOE_N72       \
  ",%72,%73,%74,%75,%76,%77,%78,%79"
#define MOE_PRODUCT(n, count, a, b, add)                                                         \
  template <class T>                                                                             \
  struct Product<T, T, n, Major::kDepth, Major::kDepth> {                                        \
    static __device__ __forceinline__ void run(float (&d)[count], uint64_t left, uint64_t right, \
                                               int more) {                                       \
      if constexpr (std::is_same_v<T, __half>) {                                                 \
        MOE_PRODUCT_OF("f16.f16", n, count, a, b, add);                                          \
      } else {                                                                                   \
        MOE_PRODUCT_OF("bf16.bf16", n, count, a, b, add);                                        \
      }                                                                                          \
    }                                                                                            \
  };
#define MOE_PRODUCT_OF(type, n, count, a, b, add)                                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add                                        \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type " {" MOE_N##count \
               "}, " a ", " b ", p, 1, 1, 0, 0;\n}"                                           \
               : MOE_D##count                                                                 \
               : "l"(left), "l"(right), "r"(more))

MOE_PRODUCT(48, 24, "%24", "%25", "%26")
MOE_PRODUCT(80, 40, "%40", "%41", "%42")
MOE_PRODUCT(112, 56, "%56", "%57", "%58")
MOE_PRODUCT(144, 72, "%72", "%73", "%74")
MOE_PRODUCT(160, 80, "%80", "%81", "%82")

// d = A B^T (with `more` d +=), 16 of the depth, the left side in registers: left[0] are the
// columns 2 (lane % 4) and one more of row 16 warp + lane / 4, left[1] those 8 rows below, left[2]
// and left[3] 8 columns further.
template <class T, int kN>
struct ProductOfRegisters;

#define MOE_OF_REGISTERS(n, count, a0, a1, a2, a3, b, add)                                   \
  template <class T>                                                                         \
  struct ProductOfRegisters<T, n> {                                                          \
    static __device__ __forceinline__ void run(float (&d)[count], const uint32_t (&left)[4], \
                                               uint64_t right, int more) {                   \
      if constexpr (std::is_same_v<T, __half>) {                                             \
        MOE_OF_REGISTERS_OF("f16.f16", n, count, a0, a1, a2, a3, b, add);                    \
      } else {                                                                               \
        MOE_OF_REGISTERS_OF("bf16.bf16", n, count, a0, a1, a2, a3, b, add);                  \
      }                                                                                      \
    }                                                                                        \
  };
#define MOE_OF_REGISTERS_OF(type, n, count, a0, a1, a2, a3, b, add)                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add                                        \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type " {" MOE_N##count \
               "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b ", p, 1, 1, 0;\n}"                   \
               : MOE_D##count                                                                 \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(more))

MOE_OF_REGISTERS(16, 8, "%8", "%9", "%10", "%11", "%12", "%13")
MOE_OF_REGISTERS(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
MOE_OF_REGISTERS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")

#undef MOE_OF_REGISTERS
#undef MOE_OF_REGISTERS_OF
#undef MOE_N8
#undef MOE_N16
#undef MOE_N32
#undef MOE_D16
#undef MOE_D32
#undef MOE_PRODUCT
#undef MOE_PRODUCT_OF
#undef MOE_N24
#undef MOE_N40
#undef MOE_N56
#undef MOE_N72
#undef MOE_N80
#undef MOE_D80
#undef MOE_D72
#undef MOE_D56
#undef MOE_D40
#undef MOE_D24
#undef MOE_D8
#undef MOE_AT

}  // namespace kernforge::hopper
