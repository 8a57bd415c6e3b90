// SPDX-License-Identifier: Apache-2.0
// Warp-wide instructions. Each lane passes its registers. The operation runs after all lanes have met, and writes the
// results into the registers.
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/check.h"
#include "kernels/dtype.h"
#include "tests/testing/emulated_cuda/copy_groups.h"
#include "tests/testing/emulated_cuda/kernels/cuda/base/ptx.cuh"

namespace foretoken::kernels::cuda::ptx {
namespace {

constexpr size_t kCopyBytes = 16;

bool IsAligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % kCopyBytes == 0; }

// Element `half` of a pair; 0 is the low half.
uint16_t HalfOf(uint32_t pair, int half) { return static_cast<uint16_t>(pair >> (16 * half)); }

uint32_t PairOf(uint16_t low, uint16_t high) { return uint32_t{low} | uint32_t{high} << 16; }

// All values of e4m3 except 0 are normal numbers in f16 and in f32. The exponent bias of f32 is larger by 112.
uint16_t F16FromE4m3(uint8_t code) {
  const auto bits = std::bit_cast<uint32_t>(FloatFromE4m3(code));
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  return static_cast<uint16_t>(sign | (magnitude == 0 ? 0 : (magnitude >> 13) - (112u << 10)));
}

struct MmaOperand {
  float* sums;
  const uint32_t* a;
  const uint32_t* b;
};

// Lane 4 g + t has pair t of row (column) g, and in the next registers those 8 rows and 8 k further; see mma.cuh.
template <float (*kFloatFrom)(uint16_t)>
void RunMma(std::span<void* const> operands) {
  const auto lane_of = [&](int lane) { return *static_cast<const MmaOperand*>(operands[lane]); };
  float a[16][16], b[8][16];
  for (int k = 0; k < 16; ++k) {
    const int t = k % 8 / 2;
    for (int row = 0; row < 16; ++row) {
      a[row][k] = kFloatFrom(HalfOf(lane_of(row % 8 * 4 + t).a[row / 8 + k / 8 * 2], k % 2));
    }
    for (int column = 0; column < 8; ++column) {
      b[column][k] = kFloatFrom(HalfOf(lane_of(column * 4 + t).b[k / 8], k % 2));
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float& sum = lane_of(row % 8 * 4 + column / 2).sums[row / 8 * 2 + column % 2];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[column][k];  // an exact product, so it is a fused one
    }
  }
}

struct LoadOperand {
  uint32_t* matrices;
  const void* row;
};

uint16_t ElementOf(std::span<void* const> operands, int matrix, int row, int column) {
  return static_cast<const uint16_t*>(static_cast<const LoadOperand*>(operands[matrix * 8 + row])->row)[column];
}

void RunLoad(std::span<void* const> operands) {
  for (int lane = 0; lane < 32; ++lane) {
    const int row = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      static_cast<LoadOperand*>(operands[lane])->matrices[i] =
          PairOf(ElementOf(operands, i, row, column), ElementOf(operands, i, row, column + 1));
    }
  }
}

void RunTransposedLoad(std::span<void* const> operands) {
  for (int lane = 0; lane < 32; ++lane) {
    const int row = lane % 4 * 2, column = lane / 4;
    for (int i = 0; i < 4; ++i) {
      static_cast<LoadOperand*>(operands[lane])->matrices[i] =
          PairOf(ElementOf(operands, i, row, column), ElementOf(operands, i, row + 1, column));
    }
  }
}

}  // namespace

void MmaM16N8K16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaOperand operand{.sums = sums, .a = a, .b = b};
  foretoken::testing::MeetWarp(RunMma<FloatFromBf16>, &operand);
}

void MmaF16M16N8K16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaOperand operand{.sums = sums, .a = a, .b = b};
  foretoken::testing::MeetWarp(RunMma<FloatFromF16>, &operand);
}

void GroupMmaOfColumns(float (*sums)[4], int num_fragments, const uint32_t (&a)[4], const void* columns, int step) {
  constexpr int kColumnBytes = 128;
  FT_CHECK(reinterpret_cast<uintptr_t>(columns) % (8 * kColumnBytes) == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < num_fragments; ++i) {
    const auto* column = static_cast<const uint8_t*>(columns) + (8 * i + lane / 4) * kColumnBytes;
    uint32_t b[2];
    for (int half = 0; half < 2; ++half) {
      const int piece = (2 * step + half) ^ (lane / 4);
      std::memcpy(&b[half], column + piece * kCopyBytes + lane % 4 * sizeof(uint32_t), sizeof(uint32_t));
    }
    MmaM16N8K16(sums[i], a, b);
  }
}

void LoadMatrices(uint32_t (&matrices)[4], const void* row) {
  FT_CHECK(IsAligned(row));
  LoadOperand operand{.matrices = matrices, .row = row};
  foretoken::testing::MeetWarp(RunLoad, &operand);
}

void LoadTransposedMatrices(uint32_t (&matrices)[4], const void* row) {
  FT_CHECK(IsAligned(row));
  LoadOperand operand{.matrices = matrices, .row = row};
  foretoken::testing::MeetWarp(RunTransposedLoad, &operand);
}

void CopyAsync16(void* shared, const void* global, uint32_t num_bytes) {
  FT_CHECK(IsAligned(shared) && IsAligned(global) && num_bytes <= kCopyBytes);
  foretoken::testing::CopiesOfThread().Copy16(shared, global, num_bytes);
}

void CommitCopies() { foretoken::testing::CopiesOfThread().Commit(); }

void WaitForAllCopiesBut(int num_pending) { foretoken::testing::CopiesOfThread().WaitForAllBut(num_pending); }

uint32_t F16PairFromE4m3(uint32_t codes) {
  return PairOf(F16FromE4m3(static_cast<uint8_t>(codes)), F16FromE4m3(static_cast<uint8_t>(codes >> 8)));
}

uint32_t Bf16Pair(float low, float high) { return PairOf(Bf16FromFloat(low), Bf16FromFloat(high)); }

}  // namespace foretoken::kernels::cuda::ptx
