// SPDX-License-Identifier: Apache-2.0
//
// Where the sort writes and the products read: tiles of tokens side by side by expert.

#pragma once

#include "moe.h"

namespace moe::sorting {

constexpr int kFew = 1024;   // assignments that one block sorts
constexpr int kChunk = 256;  // of each block where there are more
constexpr int kUnit = 16;    // rows
constexpr int kBand = 16;    // tiles of tokens that share weights at one time

// A tile of at most `most` tokens. Those of an expert have sizes that differ by one unit at most.
struct alignas(16) Tile {
  int expert;
  int band;               // the first tile of the same band
  int row;                // the first
  int16_t tokens, width;  // rows of it, tiles of the band
};

inline int64_t most_tiles(int64_t assignments, int64_t experts, int most) {
  return assignments / most + (assignments < experts ? assignments : experts);
}

// In one piece of memory, each part on 128 bytes.
struct Tables {
  int* tiles_in_all;
  Tile* tiles;
  int* first_row;  // of each expert
  int* counts;     // [experts, chunks]: assignments, then those before the chunk
  int* sources;    // of each row its token
  int* positions;  // of each assignment its row, or -1
  int64_t bytes;
  // For a gradient, of other memory; nullptr without one.
  int *assignments, *ends;  // as `Sort` has them
};

inline Tables tables_in(void* memory, int64_t assignments, int64_t experts, int most) {
  int64_t at = 0;
  const auto part = [&](int64_t bytes) {
    char* here = static_cast<char*>(memory) + at;
    at += (bytes + 127) / 128 * 128;
    return static_cast<void*>(here);
  };
  const int64_t chunks = (assignments + kChunk - 1) / kChunk;
  Tables of{};
  of.tiles_in_all = static_cast<int*>(part(4));
  of.tiles = static_cast<Tile*>(part(most_tiles(assignments, experts, most) * 16));
  of.first_row = static_cast<int*>(part(experts * 4));
  of.counts = static_cast<int*>(part(experts * chunks * 4));
  of.sources = static_cast<int*>(part(rows_of(assignments, experts) * 4));
  of.positions = static_cast<int*>(part(assignments * 4));
  of.bytes = at;
  return of;
}

}  // namespace moe::sorting
