// SPDX-License-Identifier: Apache-2.0
// The layout of a weight in device memory. The weight is panels of 128 outputs. A panel is slices of 64 inputs, one
// after another. A slice is eight tiles of 16 outputs. A tile is chunks along the inputs. A chunk is the part of a
// matrix step's left side that a warp's lanes hold (FragmentA in mma.cuh): 16 bytes each, lane by lane. So a block that
// computes a panel reads each slice as one run of 16 KiB (bf16), 8 KiB (e4m3, int8) or 4 KiB (int4), whose bytes go
// straight to registers. Zeros pad the weight to whole panels and slices.
//
//   bf16  a chunk is 16 inputs: a lane's four pairs.
//   e4m3  a chunk is 32 inputs: a lane's four quads (CodesA in mma_e4m3.cuh). The weight is code times the output's
//         scale.
//   int8  a chunk is 32 inputs: a lane's codes of two matrix steps, 8 bytes each, in the order of FragmentA's pairs.
//   int4  a chunk is 64 inputs: a lane's codes of four steps, 4 bytes each, the first of a pair in the low half.
//
// A code of an integer format stands for the bf16 nearest to scale * (code - center) + offset, computed as one rounded
// f32. So a product is that of the bf16 matrix with these values, bit for bit. The scales and offsets of a group of
// inputs lie output by output.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/matmul/numeric_class.h"
#include "kernels/dtype.h"
#include "kernels/host_device.h"

namespace foretoken::kernels::cuda {

enum class WeightFormat : uint8_t { kBf16, kE4m3, kInt8, kInt4 };

FT_HOST_DEVICE constexpr bool IsInteger(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
}

inline constexpr int kPanelOutputs = 128;
inline constexpr int kTileOutputs = 16;
inline constexpr int kPanelTiles = kPanelOutputs / kTileOutputs;
inline constexpr int kLeastGroupSize = 16;  // the inputs of a matrix step, whose codes are widened with one scale
inline constexpr int kLaneBytes = 16;
inline constexpr int kChunkBytes = 32 * kLaneBytes;

FT_HOST_DEVICE constexpr int ChunkInputs(WeightFormat format) {
  return format == WeightFormat::kBf16 ? 16 : format == WeightFormat::kInt4 ? 64 : 32;
}
// The bytes of a tile's slice, and of a panel's.
FT_HOST_DEVICE constexpr int TileSliceBytes(WeightFormat format) {
  return kSliceInputs / ChunkInputs(format) * kChunkBytes;
}
FT_HOST_DEVICE constexpr int PanelSliceBytes(WeightFormat format) { return kPanelTiles * TileSliceBytes(format); }

struct PackedWeight {
  uint8_t* data = nullptr;
  float* scales = nullptr;   // [N] of e4m3; [num_groups, padded_outputs] of integers
  float* offsets = nullptr;  // of integers, as their scales, if there are any
  WeightFormat format = WeightFormat::kBf16;
  int64_t num_outputs = 0;  // N
  int64_t num_inputs = 0;   // K
  int64_t group_size = 0;   // inputs of integers that share a scale: 16, 32, 64 or 128
  bool has_offsets = false;

  FT_HOST_DEVICE int64_t num_panels() const { return (num_outputs + kPanelOutputs - 1) / kPanelOutputs; }
  FT_HOST_DEVICE int64_t num_slices() const { return (num_inputs + kSliceInputs - 1) / kSliceInputs; }
  FT_HOST_DEVICE int64_t num_bytes() const { return num_panels() * num_slices() * PanelSliceBytes(format); }
  FT_HOST_DEVICE const uint8_t* panel(int64_t i) const { return data + i * num_slices() * PanelSliceBytes(format); }

  FT_HOST_DEVICE int64_t padded_outputs() const { return num_panels() * kPanelOutputs; }
  FT_HOST_DEVICE int64_t num_groups() const { return (num_slices() * kSliceInputs + group_size - 1) / group_size; }
  // The value of an integer code.
  FT_HOST_DEVICE float Value(int64_t output, int64_t group, int code) const {
    const int64_t at = group * padded_outputs() + output;
    const int center = format == WeightFormat::kInt8 ? 128 : 8;
    return fmaf(scales[at], static_cast<float>(code - center), has_offsets ? offsets[at] : 0.0f);
  }

  // The byte at which an element begins in data; for int4 the byte that holds it.
  FT_HOST_DEVICE int64_t OffsetOf(int64_t output, int64_t input) const {
    const int64_t slice_begin =
        (output / kPanelOutputs * num_slices() + input / kSliceInputs) * PanelSliceBytes(format);
    const auto n = static_cast<int>(output % kPanelOutputs), k = static_cast<int>(input % kSliceInputs);
    if (IsInteger(format)) return slice_begin + OffsetOfCode(n, k);
    // Each lane has some neighbours in the first half of a chunk's inputs, and as many in the second half.
    const int element_bytes = format == WeightFormat::kBf16 ? 2 : 1, half_inputs = ChunkInputs(format) / 2;
    const int neighbours = half_inputs / 4, lane = n % 8 * 4 + k % half_inputs / neighbours;
    const int word = n % kTileOutputs / 8 + k / half_inputs % 2 * 2;
    return slice_begin + n / kTileOutputs * TileSliceBytes(format) + k / ChunkInputs(format) * kChunkBytes +
           lane * kLaneBytes + word * 4 + k % neighbours * element_bytes;
  }

  FT_HOST_DEVICE float Element(int64_t output, int64_t input) const {
    const uint8_t* element = data + OffsetOf(output, input);
    if (IsInteger(format)) {
      const int code = format == WeightFormat::kInt8 ? *element : *element >> (input % 2 * 4) & 0xf;
      return FloatFromBf16(Bf16FromFloat(Value(output, input / group_size, code)));
    }
    if (format == WeightFormat::kE4m3) return FloatFromE4m3(*element) * scales[output];
    return FloatFromBf16(*reinterpret_cast<const uint16_t*>(element));
  }

 private:
  // Within a panel's slice, of output n and input k.
  FT_HOST_DEVICE int64_t OffsetOfCode(int n, int k) const {
    const int step = k / 16, pair = n % kTileOutputs / 8 + k % 16 / 8 * 2, lane = n % 8 * 4 + k % 8 / 2;
    const int64_t tile = n / kTileOutputs * TileSliceBytes(format);
    if (format == WeightFormat::kInt4) return tile + lane * kLaneBytes + step * 4 + pair;
    return tile + step / 2 * kChunkBytes + lane * kLaneBytes + step % 2 * 8 + pair * 2 + k % 2;
  }
};

}  // namespace foretoken::kernels::cuda
