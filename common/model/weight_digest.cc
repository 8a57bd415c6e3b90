// SPDX-License-Identifier: Apache-2.0
#include "common/model/weight_digest.h"

#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/model/weight_names.h"
#include "kernels/check.h"

namespace foretoken::model {
namespace {

constexpr size_t kDigestBytes = 16;  // the shown part of the digest

absl::string_view AsText(const void* data, size_t num_bytes) { return {static_cast<const char*>(data), num_bytes}; }

}  // namespace

absl::StatusOr<WeightDigest> WeightDigest::Make(const ModelConfig& config, const quantization::OpenedWeights& weights) {
  WeightDigest digest;
  digest.num_missing_rows_ = std::make_unique<std::atomic<int64_t>>(0);
  for (const WeightName& weight : ListWeights(NameWeights(config))) {
    FT_ASSIGN_OR_RETURN(const quantization::FoundWeight* found,
                        weights.Find(weight.name, weight.shape, config.quantization));
    for (const quantization::NamedTensor& named : found->tensors) {
      const weights::StoredTensor& tensor = *named.tensor;
      Entry& entry = digest.entries_.emplace_back(Entry{.name = named.name, .bytes = tensor.bytes});
      if (found->stored == nullptr) {
        entry.dtype = found->floats.dtype;
        if (weight.shape.rank != 2) continue;
      } else {
        entry.format = absl::StrCat(found->format, "; ", tensor.dtype);
      }
      entry.rows.resize(tensor.shape.size() < 2 ? 1 : tensor.shape[0]);
      *digest.num_missing_rows_ += static_cast<int64_t>(entry.rows.size());
    }
  }
  for (Entry& entry : digest.entries_) {
    if (!entry.rows.empty()) digest.by_address_.push_back(&entry);
  }
  std::ranges::sort(digest.by_address_, std::less<>(), [](const Entry* entry) { return entry->bytes.data(); });
  return digest;
}

void WeightDigest::AddRows(const void* begin, size_t num_bytes) {
  const auto* bytes = static_cast<const std::byte*>(begin);
  const auto after = std::ranges::upper_bound(by_address_, bytes, std::less<>(),
                                              [](const Entry* entry) { return entry->bytes.data(); });
  FT_CHECK(after != by_address_.begin());
  Entry& entry = **std::prev(after);
  const size_t row_bytes = entry.bytes.size() / entry.rows.size();
  const size_t offset = bytes - entry.bytes.data();
  FT_CHECK(offset % row_bytes == 0 && num_bytes % row_bytes == 0 && offset + num_bytes <= entry.bytes.size());
  const size_t first_row = offset / row_bytes, num_rows = num_bytes / row_bytes;
  for (size_t i = 0; i < num_rows; ++i) {
    XXH128_canonical_t canonical;  // the same bytes on every machine
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes + i * row_bytes, row_bytes));
    std::ranges::copy(canonical.digest, entry.rows[first_row + i].begin());
  }
  *num_missing_rows_ -= static_cast<int64_t>(num_rows);
}

std::string WeightDigest::Finish() const {
  FT_CHECK(*num_missing_rows_ == 0);
  base::Sha256 hash;
  for (const Entry& entry : entries_) {
    hash.UpdateInteger(entry.name.size());
    hash.Update(entry.name);
    if (entry.format.empty()) {
      hash.UpdateInteger(static_cast<uint64_t>(entry.dtype));
    } else {
      hash.UpdateInteger(entry.format.size());
      hash.Update(entry.format);
    }
    hash.UpdateInteger(entry.bytes.size());
    if (entry.rows.empty()) {
      hash.Update(AsText(entry.bytes.data(), entry.bytes.size()));
    } else {
      hash.Update(AsText(entry.rows.data(), entry.rows.size() * sizeof(entry.rows[0])));
    }
  }
  const base::Sha256Digest digest = hash.Finish();
  return base::ToHex(std::span(digest).first(kDigestBytes));
}

}  // namespace foretoken::model
