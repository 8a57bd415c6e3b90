// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/gguf_matrix.h"

#include <algorithm>
#include <random>

#include "kernels/dtype.h"

namespace foretoken::testing {
namespace {

template <typename T, typename Convert>
std::string Packed(const std::vector<float>& values, const Convert& convert) {
  std::vector<T> packed;
  for (const float value : values) packed.push_back(convert(value));
  return {reinterpret_cast<const char*>(packed.data()), packed.size() * sizeof(T)};
}

}  // namespace

EncodedMatrix InF32(const std::string&, const std::vector<float>& values) {
  return {.type = 0, .bytes = Packed<float>(values, [](float value) { return value; })};
}

EncodedMatrix InF16(const std::string&, const std::vector<float>& values) {
  return {.type = 1, .bytes = Packed<_Float16>(values, [](float value) { return static_cast<_Float16>(value); })};
}

EncodedMatrix InBf16(const std::string&, const std::vector<float>& values) {
  return {.type = 30, .bytes = Packed<uint16_t>(values, [](float value) { return kernels::Bf16FromFloat(value); })};
}

EncodedMatrix InRandomBlocks(const reference::GgufType& type, const std::string& name, size_t num_values) {
  std::mt19937 random(static_cast<uint32_t>(name.size() * 131 + static_cast<unsigned char>(name[name.size() / 2])));
  std::string bytes;
  for (size_t i = 0; i < num_values / type.block_values * type.block_bytes; ++i) {
    bytes.push_back(static_cast<char>(random()));
  }
  const bool has_two = type.name == "Q4_1" || type.name == "Q5_1" || type.name == "Q4_K" || type.name == "Q5_K";
  for (size_t block = 0; block < bytes.size(); block += type.block_bytes) {
    if (type.name == "MXFP4") bytes[block] = 120;
    for (const size_t at : {type.name == "Q6_K" ? size_t{208} : size_t{0}, size_t{2}}) {
      if (type.name == "MXFP4" || (at == 2 && !has_two)) continue;
      bytes[block + at + 1] = 0x10;  // about 2^-11
    }
  }
  return {.type = type.id, .bytes = bytes};
}

EncodedMatrix InTypesOfQ4KM(const std::string& name, const std::vector<float>& values) {
  const auto holds = [&](const char* part) { return name.find(part) != std::string::npos; };
  const std::string type = holds("v_proj") || holds("down_proj") || holds("embed_tokens") ? "Q6_K" : "Q4_K";
  return InRandomBlocks(*std::ranges::find(reference::GgufTypes(), type, &reference::GgufType::name), name,
                        values.size());
}

}  // namespace foretoken::testing
