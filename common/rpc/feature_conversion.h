// SPDX-License-Identifier: Apache-2.0
// Converts what a drafter reads of the target between the wire and TargetFeatures. The verifier does not trust a
// proposer's description, so everything is checked that the model or the projection's size depends on. The values of a
// projection may be anything: they decide only how good the guesses are.
//
//   WriteFeatures(features, response);                                                    // the proposer
//   FT_ASSIGN_OR_RETURN(AnnouncedFeatures announced, ReadFeatures(response, shape));      // the verifier
//   FT_RETURN_IF_ERROR(FillProjection(bytes, announced));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/speculation/target_features.h"
#include "foretoken/v1/proposal.pb.h"

namespace foretoken::rpc {

// The matrix, then the gains if there is a norm.
std::string ProjectionBytes(const speculation::FeatureProjection& projection);
// SHA-256 in hex.
std::string ProjectionDigest(absl::string_view bytes);

// Sets needed_features, target_hidden_size and projection. `digest` is the projection's; empty without one.
void WriteFeatures(const speculation::TargetFeatures& features, absl::string_view digest,
                   v1::DescribeProposerResponse& response);

// The target's sizes.
struct TargetShape {
  int64_t hidden_size = 0;  // E
  int64_t num_layers = 0;   // L
};

struct AnnouncedFeatures {
  speculation::TargetFeatures features;  // a projection has no weight and no gains yet
  std::string digest;                    // empty: no projection
  size_t num_projection_bytes = 0;
};

// The response needs features. INVALID_ARGUMENT names the feature or field, expected and got.
absl::StatusOr<AnnouncedFeatures> ReadFeatures(const v1::DescribeProposerResponse& response, const TargetShape& shape);

// INVALID_ARGUMENT: the bytes have another size or another digest.
absl::Status FillProjection(absl::string_view bytes, AnnouncedFeatures& announced);

}  // namespace foretoken::rpc
