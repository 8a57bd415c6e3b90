// SPDX-License-Identifier: Apache-2.0
// A served drafter that reads features of the target, and a pool that knows the target's shape.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/feature_conversion.h"
#include "common/rpc/server.h"
#include "common/telemetry/metrics.h"
#include "proposer_service/proposal_service.h"
#include "tests/testing/fakes/feature_recorder.h"
#include "tests/verifier_service/proposers/pool_speaker.h"

namespace foretoken::verifier {

inline constexpr rpc::TargetShape kShape = {.hidden_size = 16, .num_layers = 4};

inline speculation::TargetFeatures Projected(uint16_t weight) {
  speculation::FeatureProjection projection = {.num_outputs = 8,
                                               .norm = speculation::FeatureProjection::Norm::kWhole,
                                               .gains = std::vector<float>(32, 2),
                                               .eps = 1};
  projection.weight.assign(8 * 32, weight);
  return {.layers = {1, 4}, .target_hidden_size = 16, .projection = std::move(projection)};
}

// A served drafter.
class Drafter {
 public:
  explicit Drafter(speculation::TargetFeatures features, const proposer::SessionLimits& limits = {},
                   std::string method = "ngram", const std::string& projection_directory = "", int port = 0)
      : method_(std::move(method)) {
    auto recorder = std::make_unique<testing::FeatureRecorder>(std::move(features), method_);
    recorder_ = recorder.get();
    service_ =
        proposer::ProposalService::Create({.limits = limits, .draft = {.projection_directory = projection_directory}},
                                          std::move(recorder), metrics_)
            .value();
    server_ = rpc::Server::Start({.listen_address = absl::StrCat("127.0.0.1:", port)}, {service_.get()}).value();
  }
  int port() const { return server_->port(); }
  std::string spec() const { return absl::StrCat(method_, "=static:127.0.0.1:", server_->port()); }
  std::unique_ptr<v1::ProposalService::Stub> Connect() const {
    return v1::ProposalService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()));
  }
  testing::FeatureRecorder& recorder() { return *recorder_; }

 private:
  const std::string method_;
  telemetry::Metrics metrics_;
  testing::FeatureRecorder* recorder_;
  std::unique_ptr<proposer::ProposalService> service_;
  std::unique_ptr<rpc::Server> server_;
};

inline ProposerPoolOptions Options() {
  ProposerPoolOptions options = PoolOptions();
  options.target = kShape;
  return options;
}

}  // namespace foretoken::verifier
