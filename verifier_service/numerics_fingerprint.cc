// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/numerics_fingerprint.h"

#include <features.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/version.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kDigestBytes = 16;  // the shown part of the digest
constexpr size_t kIdsDigestBytes = 4;

void UpdateText(absl::string_view text, base::Sha256& hash) {
  hash.UpdateInteger(text.size());
  hash.Update(text);
}

std::string Shown(const base::Sha256Digest& digest, size_t num_bytes) {
  return base::ToHex(std::span(digest).first(num_bytes));
}

std::string DigestOfIds(absl::string_view vocabulary, std::span<const int32_t> end_token_ids) {
  std::vector<int32_t> sorted(end_token_ids.begin(), end_token_ids.end());
  std::ranges::sort(sorted);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  base::Sha256 hash;
  UpdateText(vocabulary, hash);
  for (const int32_t id : sorted) hash.UpdateInteger(static_cast<uint64_t>(id));
  return Shown(hash.Finish(), kIdsDigestBytes);
}

// Names the C library. Its sin, cos, exp and log round differently between releases. They also differ with and without
// fused multiplication, which the library detects at run time.
std::string DescribeMathLibrary() {
#ifdef __GLIBC__
  std::string text = absl::StrCat("glibc-", gnu_get_libc_version());
#else
  std::string text = "libm";
#endif
#ifdef __x86_64__
  if (__builtin_cpu_supports("fma")) text += "+fma";
#endif
  return text;
}

}  // namespace

std::string DescribeNumerics(const NumericsDescriptionArgs& args) {
  return absl::StrCat("foretoken-", base::Version(), " numerics-", kNumericsVersion, " ", base::Toolchain(), " ",
                      args.backend, " ", DescribeMathLibrary(), " tp", args.tensor_parallel, " bf16 ",
                      args.takes_long_divisors ? "rope-long " : "", "ids-", args.num_tokens, "/",
                      DigestOfIds(args.vocabulary, args.end_token_ids));
}

std::string ComputeNumericsFingerprint(absl::string_view description, absl::string_view config_text,
                                       absl::string_view weight_digest) {
  base::Sha256 hash;
  UpdateText(config_text, hash);
  UpdateText(weight_digest, hash);
  return absl::StrCat(description, " weights-", Shown(hash.Finish(), kDigestBytes));
}

}  // namespace foretoken::verifier
