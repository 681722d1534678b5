// SPDX-License-Identifier: Apache-2.0
//
// A quicker way to sort the rows of one warp or block than the network alone, where their words are
// spread evenly over their range: each word goes near its place at once. There are as many buckets
// as slots. The words of each bucket are counted, the counts are summed up, each word is written to
// a slot of its bucket, and then near slots are compared: 17 minima and maxima an element instead
// of 76 in a row of 4,096.
//
// A bucket has a part of the range of words, which are those of bitonic_sort.cu: places of numbers
// between two ends of the row, or differences from the least key. The ends are those of the row, or
// nearer ones where few numbers are far from the others. Where a bucket has too many words, the row
// is left to bitonic_sort.cu.

#include <cmath>
#include <type_traits>

#include "bitonic_sort.h"
#include "network.cuh"
#include "rows.cuh"

namespace bitonic_sort {
namespace {

constexpr int kFullest = kEach / 2 + 1;  // words of a bucket, which lie in two threads at most

// Of the words of a row: those of one bucket are between two others.
struct Spread {
  uint32_t least;
  uint32_t factor;  // buckets for 2^32 words

  // Of `size` words from `least` on, in 2^log buckets.
  __device__ __forceinline__ Spread(uint32_t least, float size, int log)
      : least(least),
        // A little less, so that no rounding leads to one bucket more.
        factor(static_cast<uint32_t>(
            fminf(4294966000.0f, 4294966000.0f / size * static_cast<float>(1 << log)))) {}

  __device__ __forceinline__ uint32_t operator()(uint32_t word) const {
    return __umulhi(word - least, factor);
  }
};

// The slots of a thread's words, as places in their row.
struct Slots {
  int first, step;
  uint32_t low_bits;

  __device__ __forceinline__ uint32_t operator()(int r) const {
    return (first + r * step) & low_bits;
  }

  // The same, in a way that keeps compilers from holding 32 places in registers between loops.
  __device__ __forceinline__ Slots again() const {
    Slots slots = *this;
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(slots.first), "+r"(slots.step));
#endif
    return slots;
  }
};

// Sorts as sort_words does, and leaves the words in `words` too; or returns false with the words as
// they came, where a bucket has more than kFullest. A word's last `log` bits are its place, and
// words from place `length` on are not sorted: those are all ones. kFull: there is none.
template <bool kBlock, bool kFull, class Bucket>
__device__ __forceinline__ bool spread_words(uint32_t* words, uint32_t* sums, int thread, int log,
                                             int length, const Slots& slots, const Bucket& bucket,
                                             uint32_t (&w)[kEach]) {
  const uint32_t low_bits = (1u << log) - 1;
  const auto there = [&](uint32_t place) { return kFull || static_cast<int>(place) < length; };
  const int lane = thread & 31, row = thread << kLogEach & ~static_cast<int>(low_bits);
  __syncwarp();
  auto* all = reinterpret_cast<uint4*>(words + padded(thread >> 5 << kLogWarp));
  for (int i = lane; i < padded(kWarp) / 4; i += 32) all[i] = uint4{};
  synchronize<kBlock>();
  // A word's last bits are its number in the bucket, then its slot in the row.
  Slots place = slots.again();
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    if (!there(place(r))) continue;
    const int at = padded(row + static_cast<int>(bucket(w[r])));
    w[r] = (w[r] & ~low_bits) | atomicAdd(words + at, 1u);
  }
  synchronize<kBlock>();
  uint32_t* mine = blocked(words, thread);
  uint32_t sum = 0, most = 0;
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const uint32_t count = mine[r];
    most = max(most, count);
    sum += count;
  }
  uint32_t before = sum;
  const int lanes = kBlock ? 5 : log - kLogEach;
  for (int i = 0; i < lanes; ++i) {
    const uint32_t more = __shfl_up_sync(0xffffffffu, before, 1 << i, 1 << lanes);
    if ((lane & ((1 << lanes) - 1)) >= 1 << i) before += more;
  }
  if (kBlock && lane == 31) sums[thread >> 5] = before;
  before -= sum;
  place = slots.again();
  if (any_of<kBlock>(most > kFullest)) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (there(place(r))) w[r] = (w[r] & ~low_bits) | place(r);
    }
    return false;
  }
  if constexpr (kBlock) {
    for (int i = 0; i < thread >> 5; ++i) before += sums[i];
  }
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const uint32_t count = mine[r];
    mine[r] = before;
    before += count;
  }
  synchronize<kBlock>();
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    if (!there(place(r))) continue;
    const uint32_t word = (w[r] & ~low_bits) | place(r);
    w[r] += words[padded(row + static_cast<int>(bucket(word)))];
  }
  synchronize<kBlock>();
  place = slots.again();
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const uint32_t word = (w[r] & ~low_bits) | place(r);
    const uint32_t to = there(place(r)) ? w[r] & low_bits : place(r);
    words[padded(row + static_cast<int>(to))] = there(place(r)) ? word : ~0u;
  }
  synchronize<kBlock>();
  take_blocked(words, thread, w);
  sort_each(w);
  // A bucket that two threads have lies in the last half of the one and the first of the other.
  const bool last = ((thread + 1) << kLogEach & low_bits) == 0;
#pragma unroll
  for (int r = 0; r < kEach / 2; ++r) mine[r] = w[r];
  synchronize<kBlock>();
  if (!last) {
    constexpr int kHalf = kEach / 2;
    uint32_t both[kEach];
#pragma unroll
    for (int r = 0; r < kHalf; ++r) {
      both[r] = w[kHalf + r];
      both[kEach - 1 - r] = mine[kEach + 1 + r];
    }
    merge_each<kLogEach - 1>(both);
#pragma unroll
    for (int r = 0; r < kHalf; ++r) {
      mine[kHalf + r] = both[r];
      mine[kEach + 1 + r] = both[kHalf + r];
    }
  } else {
#pragma unroll
    for (int r = kEach / 2; r < kEach; ++r) mine[r] = w[r];
  }
  synchronize<kBlock>();
  take_blocked(words, thread, w);
  return true;
}

// Places of numbers on a line from one end of a row's numbers to the other. What is beyond has the
// place of the end.
struct Line {
  float edge, scale, steps;

  Line() = default;
  __device__ __forceinline__ Line(float low, float high, int bits, bool is_descending)
      : edge(is_descending ? high : low),
        scale((is_descending ? -1.0f : 1.0f) / (high - low)),
        steps(high > low ? static_cast<float>((1 << bits) - 2) : 0.0f) {}

  // The last bits are a whole number, below 2^bits.
  __device__ __forceinline__ uint32_t place(float f) const {
    const float share = __saturatef((f - edge) * scale);  // 0 of NaN
    return __float_as_uint(fmaf(share, steps, 8388608.0f));
  }
};

// The same, and between equal numbers of a row, in the order of their indices below 2^log, up to
// the next number: a float of 32 bits has 13 or 16 bits more.
__device__ __forceinline__ float number_of(uint32_t bits, uint32_t index, int log,
                                           const Keys<uint16_t>& keys) {
  const int more = keys.infinity == 0x7f80 ? 16 : 13;
  const bool backwards = (bits >> 15 != 0) != keys.is_descending();
  const uint32_t part = more >= log ? index << (more - log) : index >> (log - more);
  const uint32_t whole = __float_as_uint(as_float(bits, keys));
  return __uint_as_float(whole | (backwards ? part ^ ((1u << more) - 1) : part));
}

}  // namespace

// Blocks that a multiprocessor has at once; with more, registers do not suffice.
template <class U>
constexpr int spread_blocks(int threads) {
  if (threads == 0) return sizeof(U) >= 4 ? 2 : 3;
  return threads == kSmall ? (sizeof(U) == 8 ? 4 : sizeof(U) == 4 ? 5 : 6) : 1;
}

// kMost as in bitonic_sort.cu. kFull: no slot of any row is empty.
template <class U, int kMost, bool kFull>
static __global__ void __launch_bounds__(kMost == 0 ? 32 * kWarps : kMost, spread_blocks<U>(kMost))
    spread_rows(Parts of, Keys<U> keys) {
  constexpr bool kBlock = kMost != 0;
  extern __shared__ __align__(16) unsigned char memory[];
  using Wide = std::conditional_t<sizeof(U) == 8, uint64_t, uint32_t>;
  __shared__ Wide reduced[2][16];
  __shared__ float ends[16][4];
  __shared__ uint32_t sums[16];
  constexpr bool kExact = kWhole<U>;
  const int log = of.log, thread = kBlock ? threadIdx.x : threadIdx.x & 31;
  const int slots = kBlock ? 1 << log : kWarp;
  const uint32_t low_bits = (1u << log) - 1;  // of a slot, and of a word: the place in a row

  // This warp's or block's memory.
  constexpr size_t kBytes = sizeof(uint32_t) + (kExact ? 0 : sizeof(U));
  unsigned char* mine = memory;
  if constexpr (!kBlock) mine += (threadIdx.x >> 5) * (padded(kWarp) * kBytes);
  U* raw = reinterpret_cast<U*>(mine);
  auto* words = reinterpret_cast<uint32_t*>(mine + (kExact ? 0 : padded(slots) * sizeof(U)));

  // Its rows, from `first` on.
  const int64_t all = of.rows.rows * of.chunks;
  int64_t first = blockIdx.x, begin;
  int rows = 1, length = static_cast<int>(of.rows.length);
  if constexpr (kBlock) {
    begin = first * of.rows.length;
    if (of.chunks > 1) {
      const int64_t row = first / of.chunks, chunk = first % of.chunks;
      const int64_t from = chunk * of.rows.length / of.chunks;
      length = static_cast<int>((chunk + 1) * of.rows.length / of.chunks - from);
      begin = row * of.rows.length + from;
    }
  } else {
    first = (first * kWarps + (threadIdx.x >> 5)) << (kLogWarp - log);
    if (first >= all) return;
    rows = static_cast<int>(min(static_cast<int64_t>(kWarp >> log), all - first));
    begin = first * length;
  }
  const U* x = static_cast<const U*>(of.rows.x) + begin;

  // A thread's slots where memory is read and written, then in the blocked layout.
  const int striped_first = (thread >> 5 << kLogWarp) + (thread & 31);
  const int blocked_first = thread * kEach;
  const int row_first = blocked_first & ~static_cast<int>(low_bits);
  const bool has_row = row_first >> log < rows;
  // Where a warp or a block has one row, a thread sorts the elements that it reads.
  const bool direct = sizeof(U) < 8 && (kBlock || log == kLogWarp);
  const int lanes = kBlock ? 5 : log - kLogEach;
  const int word_first = direct ? striped_first : blocked_first, word_step = direct ? 32 : 1;
  const Slots place = {word_first, word_step, low_bits};
  const int here = has_row ? length : 0;
  const auto there = [&](int r) { return kFull || static_cast<int>(place(r)) < here; };

  uint32_t w[kEach];
  read_rows(x, raw, words, thread, log, rows, length, kFull, direct, w);
  synchronize<kBlock>();

  const int held = 32 - log;  // bits of a word that are the key's
  const auto number = [&](int r) {
    if constexpr (sizeof(U) == 8) {
      return as_float(static_cast<U>(raw[(kEach + 1) * thread + r]), keys);
    } else {
      return as_float(w[r], keys);
    }
  };
  bool linear = keys.is_float(), inexact = false;
  Line line{};
  float size = 0;  // of the range of words, which begins with `origin`
  uint32_t origin = 0;
  if (linear) {
    float low = INFINITY, high = -INFINITY;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (!there(r)) continue;
      low = least_of(low, number(r));
      high = greatest_of(high, number(r));
    }
    // Of some elements too, one of 32.
    float some_low = INFINITY, some_high = -INFINITY;
    if (has_row) {
      const int asked = kBlock ? thread : thread & ((1 << lanes) - 1);
      const int at = min(asked * ((length >> (log - kLogEach)) | 1), length - 1);
      if constexpr (kExact) {
        some_low = some_high = as_float(x[(row_first >> log) * length + at], keys);
      } else {
        some_low = some_high = as_float(raw[element_at<U>(row_first + at)], keys);
      }
    }
    for (int i = 0; i < lanes; ++i) {
      low = least_of(low, __shfl_xor_sync(0xffffffffu, low, 1 << i));
      high = greatest_of(high, __shfl_xor_sync(0xffffffffu, high, 1 << i));
      some_low = fminf(some_low, __shfl_xor_sync(0xffffffffu, some_low, 1 << i));
      some_high = fmaxf(some_high, __shfl_xor_sync(0xffffffffu, some_high, 1 << i));
    }
    if constexpr (kBlock) {
      if ((threadIdx.x & 31) == 0) {
        ends[threadIdx.x >> 5][0] = low;
        ends[threadIdx.x >> 5][1] = high;
        ends[threadIdx.x >> 5][2] = some_low;
        ends[threadIdx.x >> 5][3] = some_high;
      }
      __syncthreads();
      for (int i = 0; i < slots >> kLogWarp; ++i) {
        low = least_of(low, ends[i][0]);
        high = greatest_of(high, ends[i][1]);
        some_low = fminf(some_low, ends[i][2]);
        some_high = fmaxf(some_high, ends[i][3]);
      }
    }
    float range = high - low;
    bool fits = !has_row || range == 0 || (range >= 1e-30f && range <= 3e38f);
    if constexpr (kExact) fits = fits && range != 0;  // equal ones are spread by their indices
    if constexpr (!kBlock) fits = __all_sync(0xffffffffu, fits);
    linear = fits;
    const float middle = some_low / 2 + some_high / 2, more = 1.5f * (some_high - some_low);
    if (more >= 1e-30f) {
      low = fmaxf(low, middle - more);
      high = fminf(high, middle + more);
    }
    const int bits = kExact ? log : min(held, 22);
    line = Line(low, high, bits, keys.is_descending());
    inexact = !kExact && line.steps > 0;
    size = static_cast<float>(1 << log) * (line.steps > 0 ? 1 << bits : 1);
    if (!kExact && linear) {
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        w[r] = line.place(number(r)) << log | place(r);
        if (!there(r)) w[r] = ~0u;
      }
    }
  }
  if (kExact || !keys.is_float()) {
    const auto key = [&](int r) -> Wide {
      if constexpr (sizeof(U) == 8) {
        return keys.key(raw[(kEach + 1) * thread + r]);
      } else {
        return keys.key(static_cast<U>(w[r]));
      }
    };
    Wide least = static_cast<Wide>(~Wide{0}), most = 0;
    int shift = 0;
    if (!linear) {
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        if (!there(r)) continue;
        least = min(least, key(r));
        most = max(most, key(r));
      }
      for (int i = 0; i < lanes; ++i) {
        least = min(least, __shfl_xor_sync(0xffffffffu, least, 1 << i));
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 1 << i));
      }
      if constexpr (kBlock) {
        __syncthreads();
        if ((threadIdx.x & 31) == 0) {
          reduced[0][threadIdx.x >> 5] = least;
          reduced[1][threadIdx.x >> 5] = most;
        }
        __syncthreads();
        for (int i = 0; i < slots >> kLogWarp; ++i) {
          least = min(least, reduced[0][i]);
          most = max(most, reduced[1][i]);
        }
      }
      if constexpr (!kExact) shift = max((has_row ? bits_of(most - least) : 0) - held, 0);
      inexact = shift > 0;
      size = static_cast<float>(1 << log) *
             (static_cast<float>(static_cast<uint32_t>((most - least) >> shift)) + 1);
      if constexpr (kExact) origin = static_cast<uint32_t>(least) << log;
    }
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      Wide word = key(r);
      if constexpr (!kExact) word = (word - least) >> shift;
      w[r] = static_cast<uint32_t>(word) << log | place(r);
      if (!there(r)) w[r] = ~0u;
    }
  }

  bool done = false;
  if (kExact && linear) {
    if constexpr (sizeof(U) == 2) {
      const auto bucket = [&](uint32_t word) {
        const U bits = keys.number(static_cast<U>(word >> log));
        return line.place(number_of(bits, word & low_bits, log, keys)) & low_bits;
      };
      done = spread_words<kBlock, kFull>(words, sums, thread, log, here, place, bucket, w);
    }
  } else if (kExact || linear || !keys.is_float()) {
    done = spread_words<kBlock, kFull>(words, sums, thread, log, here, place,
                                       Spread(origin, size, log), w);
  }
  if (!done) {
    if (thread == 0) of.rows.indices[first * of.rows.keep] = kLeft;
    return;
  }
  if constexpr (!kExact) {
    if (kBlock ? inexact : __any_sync(0xffffffffu, inexact)) {
      Groups groups =
          groups_of(words, w, blocked_first, row_first + length, low_bits, inexact, kFullest);
      synchronize<kBlock>();
      while (groups.starts != 0) {
        int r;
        const int found = next_group(groups, &r), p = blocked_first + r & low_bits;
        order_group(words, raw, keys, row_first, p, min(found, length - p), low_bits);
      }
      synchronize<kBlock>();
    }
  }
  write_rows<U, kBlock>(of, keys, x, raw, words, thread, rows, length, first, begin, kFull);
}

template <class U>
cudaError_t spread_launch(const Order& order, const Parts& of, cudaStream_t stream) {
  const bool block = of.log > kLogWarp;
  const int threads = block ? 1 << (of.log - kLogEach) : 32 * kWarps;
  const int slots = block ? 1 << of.log : kWarp * kWarps;
  const size_t bytes = padded(slots) * (sizeof(uint32_t) + (kWhole<U> ? 0 : sizeof(U)));
  const int64_t all = of.rows.rows * of.chunks,
                each = block ? 1 : int64_t{1} << (kLogWarp - of.log);
  const bool full = of.rows.length == of.chunks << of.log && all % each == 0;
  const auto choose = [&](auto kernels) {
    return !block ? kernels[0] : threads > kSmall ? kernels[2] : kernels[1];
  };
  using Kernel = void (*)(Parts, Keys<U>);
  constexpr int kLong = kLongest / kEach;
  const Kernel kernels[2][3] = {
      {spread_rows<U, 0, false>, spread_rows<U, kSmall, false>, spread_rows<U, kLong, false>},
      {spread_rows<U, 0, true>, spread_rows<U, kSmall, true>, spread_rows<U, kLong, true>}};
  const Kernel kernel = choose(kernels[full]);
  if (bytes > 48 << 10) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (error != cudaSuccess) return error;
  }
  const int64_t blocks = block ? all : (all + each * kWarps - 1) / (each * kWarps);
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(of, Keys<U>(order));
  return cudaGetLastError();
}

template cudaError_t spread_launch<uint8_t>(const Order&, const Parts&, cudaStream_t);
template cudaError_t spread_launch<uint16_t>(const Order&, const Parts&, cudaStream_t);
template cudaError_t spread_launch<uint32_t>(const Order&, const Parts&, cudaStream_t);
template cudaError_t spread_launch<uint64_t>(const Order&, const Parts&, cudaStream_t);

}  // namespace bitonic_sort
