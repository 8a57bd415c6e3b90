// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/tensor_types.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace foretoken::gguf {
namespace {

constexpr TensorType kTypes[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},       {30, "BF16", 1, 2},     {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},
    {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210}, {20, "IQ4_NL", 32, 18},
    {39, "MXFP4", 32, 17},
};

constexpr std::pair<uint32_t, absl::string_view> kOtherNames[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},
    {25, "I16"},     {26, "I32"},   {27, "I64"},   {28, "F64"},   {29, "IQ1_M"},   {34, "TQ1_0"},
    {35, "TQ2_0"},   {40, "NVFP4"}, {41, "Q1_0"},  {42, "Q2_0"},
};

absl::string_view NameOfOther(uint32_t id) {
  for (const auto& [other_id, name] : kOtherNames) {
    if (other_id == id) return name;
  }
  return "unknown";
}

}  // namespace

absl::StatusOr<TensorType> FindTensorType(uint32_t id) {
  for (const TensorType& type : kTypes) {
    if (type.id == id) return type;
  }
  const auto append_name = [](std::string* out, const TensorType& type) { absl::StrAppend(out, type.name); };
  return absl::InvalidArgumentError(absl::StrCat("expected type ", absl::StrJoin(kTypes, ", ", append_name), ", got ",
                                                 NameOfOther(id), " (number ", id, ")"));
}

}  // namespace foretoken::gguf
