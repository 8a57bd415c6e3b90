// SPDX-License-Identifier: Apache-2.0
#include "common/weights/expert_stacks.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace foretoken::weights {
namespace {

constexpr int64_t kMaxExperts = int64_t{1} << 12;

struct Ending {
  const char* of_stack;
  const char* of_expert;
};

constexpr Ending kEndings[] = {
    {"_blocks", ".weight_packed"}, {"_scales", ".weight_scale"}, {"_bias", ".bias"}, {"", ".weight"}};

}  // namespace

std::vector<std::pair<std::string, StoredTensor>> SplitExperts(absl::string_view name, const StoredTensor& tensor) {
  std::vector<std::pair<std::string, StoredTensor>> experts;
  if (tensor.shape.size() < 2 || tensor.shape[0] < 1 || tensor.shape[0] > kMaxExperts || tensor.bytes.empty()) {
    return experts;
  }
  for (const absl::string_view matrix : {"gate_up_proj", "gate_proj", "up_proj", "down_proj"}) {
    for (const Ending& ending : kEndings) {
      absl::string_view place = name;
      if (!absl::ConsumeSuffix(&place, absl::StrCat(matrix, ending.of_stack))) continue;
      if (!absl::EndsWith(place, ".experts.")) continue;
      StoredTensor part = tensor;
      part.shape.erase(part.shape.begin());
      if (part.shape.size() == 3) {  // groups and their bytes
        part.shape[1] *= part.shape[2];
        part.shape.pop_back();
      }
      const size_t num_bytes = tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
      for (int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
        part.bytes = tensor.bytes.subspan(static_cast<size_t>(expert) * num_bytes, num_bytes);
        experts.emplace_back(absl::StrCat(place, expert, ".", matrix, ending.of_expert), part);
      }
      return experts;
    }
  }
  return experts;
}

}  // namespace foretoken::weights
