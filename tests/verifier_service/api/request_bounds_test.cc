// SPDX-License-Identifier: Apache-2.0
// The largest sizes of request fields. If this test fails, a small message can take a lot of memory in the server, or a
// valid request is refused.
#include "verifier_service/api/request_bounds.h"

#include <functional>
#include <string>

#include "foretoken/v1/generation.pb.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

RequestBounds DemoBounds() {
  ServedModel model;
  model.vocabulary_size = 300;
  model.max_context_tokens = 40;
  model.max_prompt_bytes = 1000;
  return RequestBounds(model);
}

struct Bound {
  const char* name;
  std::function<void(v1::GenerateRequest&, int n)> fill;
  int most;
  const char* message;  // the error for one more element
};

class GenerateBound : public ::testing::TestWithParam<Bound> {};

TEST_P(GenerateBound, IsKept) {
  v1::GenerateRequest request;
  GetParam().fill(request, GetParam().most);
  EXPECT_EQ(DemoBounds().generate.Check(request.SerializeAsString()), absl::OkStatus());
  request.Clear();
  GetParam().fill(request, GetParam().most + 1);
  EXPECT_EQ(DemoBounds().generate.Check(request.SerializeAsString()).message(), GetParam().message);
}

using Request = v1::GenerateRequest;

std::string Text(int n) { return std::string(static_cast<size_t>(n), 'x'); }

INSTANTIATE_TEST_SUITE_P(
    EveryField, GenerateBound,
    ::testing::Values(
        Bound{"RequestId", [](Request& r, int n) { r.set_request_id(Text(n)); }, 256,
              "request_id: expected at most 256 bytes, got 257"},
        Bound{"Model", [](Request& r, int n) { r.set_model(Text(n)); }, 256,
              "model: expected at most 256 bytes, got 257"},
        Bound{"Tenant", [](Request& r, int n) { r.set_tenant(Text(n)); }, 256,
              "tenant: expected at most 256 bytes, got 257"},
        Bound{"Text", [](Request& r, int n) { r.set_text(Text(n)); }, 1000,
              "text: expected at most 1000 bytes, got 1001"},
        Bound{"Tokens", [](Request& r, int n) { r.mutable_tokens()->mutable_ids()->Resize(n, 1); }, 1000,
              "tokens.ids: expected at most 1000, got 1001"},
        Bound{"LogitBias",
              [](Request& r, int n) {
                for (int i = 0; i < n; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 1;
              },
              300, "sampling.logit_bias: expected at most 300, got 301"},
        Bound{"Allowed", [](Request& r, int n) { r.mutable_sampling()->mutable_allowed_token_ids()->Resize(n, 1); },
              300, "sampling.allowed_token_ids: expected at most 300, got 301"},
        Bound{"Banned", [](Request& r, int n) { r.mutable_sampling()->mutable_banned_token_ids()->Resize(n, 1); }, 300,
              "sampling.banned_token_ids: expected at most 300, got 301"},
        Bound{"StopStrings",
              [](Request& r, int n) {
                for (int i = 0; i < n; ++i) r.mutable_stopping()->add_stop_strings("x");
              },
              16, "stopping.stop_strings: expected at most 16, got 17"},
        Bound{"StopString", [](Request& r, int n) { r.mutable_stopping()->add_stop_strings(Text(n)); }, 256,
              "stopping.stop_strings[0]: expected at most 256 bytes, got 257"},
        Bound{"StopTokens", [](Request& r, int n) { r.mutable_stopping()->mutable_stop_token_ids()->Resize(n, 1); },
              300, "stopping.stop_token_ids: expected at most 300, got 301"},
        Bound{"Proposers",
              [](Request& r, int n) {
                for (int i = 0; i < n; ++i) r.mutable_speculation()->add_proposers("x");
              },
              32, "speculation.proposers: expected at most 32, got 33"},
        Bound{"PredictedText", [](Request& r, int n) { r.mutable_speculation()->set_prediction_text(Text(n)); }, 1000,
              "speculation.prediction_text: expected at most 1000 bytes, got 1001"},
        Bound{"PredictedTokens",
              [](Request& r, int n) {
                r.mutable_speculation()->mutable_prediction_tokens()->mutable_ids()->Resize(n, 1);
              },
              1000, "speculation.prediction_tokens.ids: expected at most 1000, got 1001"},
        Bound{"Fingerprint", [](Request& r, int n) { r.set_expected_numerics_fingerprint(Text(n)); }, 1024,
              "expected_numerics_fingerprint: expected at most 1024 bytes, got 1025"}),
    [](const auto& info) { return info.param.name; });

TEST(RequestBounds, LookupsHaveBoundsToo) {
  const RequestBounds bounds = DemoBounds();
  v1::DetokenizeRequest detokenize;
  detokenize.mutable_token_ids()->Resize(300, 1);
  EXPECT_TRUE(bounds.detokenize.Check(detokenize.SerializeAsString()).ok());
  detokenize.add_token_ids(1);
  EXPECT_EQ(bounds.detokenize.Check(detokenize.SerializeAsString()).message(),
            "token_ids: expected at most 300, got 301");
  v1::TokenizeRequest tokenize;
  tokenize.set_text(Text(1001));
  EXPECT_EQ(bounds.tokenize.Check(tokenize.SerializeAsString()).message(),
            "text: expected at most 1000 bytes, got 1001");
}

}  // namespace
}  // namespace foretoken::verifier
