// SPDX-License-Identifier: Apache-2.0
// Reads the input as what a drafter says of the features that it needs. An accepted description has layers of the
// target, and sizes that the verifier can keep; a projection is taken only with the announced size and digest.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/rpc/feature_conversion.h"
#include "common/rpc/proposal_protocol.h"
#include "kernels/check.h"

namespace foretoken::rpc {
namespace {

constexpr TargetShape kShape = {.hidden_size = 8, .num_layers = 6};

void CheckProjection(const AnnouncedFeatures& announced) {
  const speculation::FeatureProjection& projection = *announced.features.projection;
  FT_CHECK(std::isfinite(projection.eps) && projection.eps >= 0 && projection.num_outputs >= 1);
  const std::string bytes(announced.num_projection_bytes, '\1');
  AnnouncedFeatures right = announced, wrong = announced;
  right.digest = ProjectionDigest(bytes);
  FT_CHECK(FillProjection(bytes, right).ok());
  FT_CHECK(ProjectionBytes(*right.features.projection) == bytes);
  FT_CHECK(!FillProjection(bytes + "x", right).ok());
  wrong.digest = ProjectionDigest("another one");
  FT_CHECK(!FillProjection(bytes, wrong).ok());
}

void Check(const AnnouncedFeatures& announced) {
  const speculation::TargetFeatures& features = announced.features;
  FT_CHECK(features.target_hidden_size == kShape.hidden_size);
  FT_CHECK(features.width() >= 1 && features.width() <= int64_t{kMaxFeatureWidth});
  for (const int32_t k : features.layers) FT_CHECK(k >= 0 && k <= kShape.num_layers);
  FT_CHECK(features.projection.has_value() == (announced.num_projection_bytes > 0));
  if (features.projection.has_value()) CheckProjection(announced);
  FT_CHECK(announced.digest.find_first_not_of("0123456789abcdef") == std::string::npos);  // it may name a file
  // It comes back equal from the wire.
  v1::DescribeProposerResponse written;
  WriteFeatures(features, announced.digest, written);
  const absl::StatusOr<AnnouncedFeatures> again = ReadFeatures(written, kShape);
  FT_CHECK(again.ok() && again->features == features && again->digest == announced.digest);
}

}  // namespace
}  // namespace foretoken::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  v1::DescribeProposerResponse response;
  if (!response.ParseFromArray(data, static_cast<int>(size))) return 0;
  const absl::StatusOr<rpc::AnnouncedFeatures> announced = rpc::ReadFeatures(response, rpc::kShape);
  if (announced.ok()) rpc::Check(*announced);
  return 0;
}
