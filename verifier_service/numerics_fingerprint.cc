// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/numerics_fingerprint.h"

#include <features.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/model/weight_names.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kDigestBytes = 16;  // shown of it
constexpr size_t kPieceBytes = size_t{8} << 20;

void UpdateText(absl::string_view text, base::Sha256& hash) {
  hash.UpdateInteger(text.size());
  hash.Update(text);
}

void UpdateBytes(const kernels::ConstTensorView& tensor, base::Sha256& hash) {
  const auto* bytes = static_cast<const char*>(tensor.data);
  const size_t num_bytes = tensor.num_bytes();
  for (size_t at = 0; at < num_bytes; at += kPieceBytes) {
    const size_t length = std::min(kPieceBytes, num_bytes - at);
    hash.Update(absl::string_view(bytes + at, length));
    weights::ReleasePages(bytes + at, length);
  }
}

// sin, cos, exp and log round differently from release to release, and with or without fused multiplication, which the
// library looks for at run time.
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

absl::StatusOr<std::string> ComputeNumericsFingerprint(const NumericsFingerprintArgs& args) {
  base::Sha256 hash;
  FT_ASSIGN_OR_RETURN(const std::string config, base::ReadFile(args.checkpoint.directory() + "/config.json"));
  UpdateText(config, hash);
  for (const model::WeightName& weight : model::ListWeights(model::NameWeights(args.config))) {
    FT_ASSIGN_OR_RETURN(const kernels::ConstTensorView tensor, args.checkpoint.Find(weight.name, weight.shape));
    UpdateText(weight.name, hash);
    hash.UpdateInteger(static_cast<uint64_t>(tensor.dtype));
    hash.UpdateInteger(tensor.num_bytes());
    UpdateBytes(tensor, hash);
  }
  const base::Sha256Digest digest = hash.Finish();
  return absl::StrCat("foretoken-", base::Version(), " numerics-", kNumericsVersion, " ", base::Toolchain(), " ",
                      args.backend, " ", DescribeMathLibrary(), " tp", args.tensor_parallel, " bf16 weights-",
                      base::ToHex(std::span(digest).first(kDigestBytes)));
}

}  // namespace foretoken::verifier
