// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/quantized.h"

#include <cmath>
#include <functional>
#include <limits>

namespace foretoken::reference {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

int Bit(const RawTensor& tensor, int64_t bit) {
  return static_cast<uint8_t>(tensor.bytes.at(bit / 8)) >> (bit % 8) & 1;
}

// `count` bits from `first` on, the lowest first.
int64_t Bits(const RawTensor& tensor, int64_t first, int count) {
  int64_t value = 0;
  for (int i = 0; i < count; ++i) value += static_cast<int64_t>(Bit(tensor, first + i)) << i;
  return value;
}

int64_t Signed(int64_t value, int bits) {
  return value >= int64_t{1} << (bits - 1) ? value - (int64_t{1} << bits) : value;
}

// A binary float of a sign, `exponent_bits` and `mantissa_bits`. The last exponent means infinity or NaN.
double Binary(int64_t code, int exponent_bits, int mantissa_bits) {
  const int64_t mantissa = code & ((int64_t{1} << mantissa_bits) - 1);
  const int64_t exponent = code >> mantissa_bits & ((int64_t{1} << exponent_bits) - 1);
  const double sign = code >> (exponent_bits + mantissa_bits) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits);
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? kNaN : sign * HUGE_VAL;
  return sign * std::ldexp(static_cast<double>(mantissa + (int64_t{1} << mantissa_bits)),
                           static_cast<int>(exponent) - bias - mantissa_bits);
}

double E8m0(int64_t code) { return code == 255 ? kNaN : std::ldexp(1.0, static_cast<int>(code) - 127); }

// Exponent 15 is a usual one; only its last mantissa is a NaN.
double E4m3(int64_t code) {
  const double sign = code >= 128 ? -1 : 1;
  const int64_t exponent = code / 8 % 16, mantissa = code % 8;
  if (exponent == 15 && mantissa == 7) return kNaN;
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(mantissa), -9);
  return sign * std::ldexp(static_cast<double>(8 + mantissa), static_cast<int>(exponent) - 10);
}

double E2m1(int64_t code) {
  static constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code >= 8 ? -kMagnitudes[code - 8] : kMagnitudes[code];
}

double Scale(const RawTensor& tensor, int64_t i) {
  if (tensor.dtype == "F32") return Binary(Bits(tensor, 32 * i, 32), 8, 23);
  if (tensor.dtype == "F16") return Binary(Bits(tensor, 16 * i, 16), 5, 10);
  if (tensor.dtype == "BF16") return Binary(Bits(tensor, 16 * i, 16), 8, 7);
  return E8m0(Bits(tensor, 8 * i, 8));
}

std::vector<float> Fill(const QuantizedShape& shape, const std::function<double(int64_t o, int64_t i)>& value) {
  std::vector<float> values;
  for (int64_t o = 0; o < shape.outputs; ++o) {
    for (int64_t i = 0; i < shape.inputs; ++i) values.push_back(static_cast<float>(value(o, i)));
  }
  return values;
}

int64_t GroupOf(const RawLayer& layer, const std::string& index, const QuantizedShape& shape, int64_t i) {
  return layer.contains(index) ? Bits(layer.at(index), 32 * i, 32) : i / shape.group_size;
}

}  // namespace

std::vector<float> PackQuantizedValues(const RawLayer& layer, const QuantizedShape& shape) {
  const RawTensor &packed = layer.at("weight_packed"), &scales = layer.at("weight_scale");
  const int bits = shape.bits;
  const int64_t center = int64_t{1} << (bits - 1);
  return Fill(shape, [&](int64_t o, int64_t i) {
    const int64_t q = Bits(packed, o * packed.shape[1] * 32 + i * bits, bits) - center;
    const int64_t group = GroupOf(layer, "weight_g_idx", shape, i);
    int64_t zero = 0;
    if (layer.contains("weight_zero_point")) {
      const RawTensor& zeros = layer.at("weight_zero_point");
      for (int b = 0; b < bits; ++b) {
        const int64_t at = o * bits + b;
        zero += static_cast<int64_t>(Bit(zeros, (at / 32 * zeros.shape[1] + group) * 32 + at % 32)) << b;
      }
      zero -= center;
    }
    return Scale(scales, o * scales.shape[1] + group) * static_cast<double>(q - zero);
  });
}

std::vector<float> IntQuantizedValues(const RawLayer& layer, const QuantizedShape& shape) {
  const RawTensor &weight = layer.at("weight"), &scales = layer.at("weight_scale");
  const int64_t num_scales = static_cast<int64_t>(scales.bytes.size()) / (scales.dtype == "F32" ? 4 : 2);
  const int64_t per_output = num_scales / shape.outputs;  // 0: one for the whole matrix
  return Fill(shape, [&](int64_t o, int64_t i) {
    const int64_t place = o * per_output + (per_output > 1 ? i / shape.group_size : 0);
    const int64_t q = Signed(Bits(weight, 8 * (o * shape.inputs + i), 8), 8);
    const bool has_zeros = layer.contains("weight_zero_point");
    const int64_t zero = has_zeros ? Signed(Bits(layer.at("weight_zero_point"), 8 * place, 8), 8) : 0;
    return Scale(scales, place) * static_cast<double>(q - zero);
  });
}

std::vector<float> GptqValues(const RawLayer& layer, const QuantizedShape& shape) {
  const int bits = shape.bits, per_word = 32 / bits;
  return Fill(shape, [&](int64_t o, int64_t i) {
    const int64_t q = Bits(layer.at("qweight"), (i / per_word * shape.outputs + o) * 32 + i % per_word * bits, bits);
    const int64_t group = GroupOf(layer, "g_idx", shape, i);
    // Version 1 has 1 less for every zero point, subtracted from the whole word.
    const int64_t at = (group * shape.outputs + o) * bits;
    uint64_t word = static_cast<uint64_t>(Bits(layer.at("qzeros"), at / 32 * 32, 32));
    for (int place = 0; place < 32 && !shape.is_gptq_v2; place += bits) word += uint64_t{1} << place;
    const auto zero = static_cast<int64_t>(word >> at % 32 & ((1u << bits) - 1));
    return Scale(layer.at("scales"), group * shape.outputs + o) * static_cast<double>(q - zero);
  });
}

std::vector<float> AwqValues(const RawLayer& layer, const QuantizedShape& shape) {
  static constexpr int kOutputOfNibble[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto code = [&](const RawTensor& tensor, int64_t line, int64_t o) -> int64_t {
    for (int nibble = 0; nibble < 8; ++nibble) {
      if (kOutputOfNibble[nibble] == o % 8) {
        return Bits(tensor, (line * (shape.outputs / 8) + o / 8) * 32 + nibble * 4, 4);
      }
    }
    return 0;
  };
  return Fill(shape, [&](int64_t o, int64_t i) {
    const int64_t group = i / shape.group_size;
    const int64_t difference = code(layer.at("qweight"), i, o) - code(layer.at("qzeros"), group, o);
    return Scale(layer.at("scales"), group * shape.outputs + o) * static_cast<double>(difference);
  });
}

std::vector<float> Fp8Values(const RawLayer& layer, const QuantizedShape& shape) {
  const RawTensor& scales = layer.contains("weight_scale") ? layer.at("weight_scale") : layer.at("weight_scale_inv");
  const int64_t columns = (shape.inputs + shape.block_inputs - 1) / shape.block_inputs;
  return Fill(shape, [&](int64_t o, int64_t i) {
    return E4m3(Bits(layer.at("weight"), 8 * (o * shape.inputs + i), 8)) *
           Scale(scales, o / shape.block_outputs * columns + i / shape.block_inputs);
  });
}

std::vector<float> Mxfp4Values(const RawLayer& layer, const QuantizedShape& shape) {
  return Fill(shape, [&](int64_t o, int64_t i) {
    const int64_t at = o * shape.inputs + i;
    return E2m1(Bits(layer.at("weight_packed"), 4 * at, 4)) * E8m0(Bits(layer.at("weight_scale"), at / 32 * 8, 8));
  });
}

}  // namespace foretoken::reference
