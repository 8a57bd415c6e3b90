// SPDX-License-Identifier: Apache-2.0
// Calls of ReadProjection whose pieces nobody takes. If these tests fail, a verifier that does not read fills a
// proposer's memory, a mebibyte per call.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/feature_conversion.h"
#include "common/rpc/server.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proposer_service/proposal_service.h"
#include "tests/testing/raw_http2.h"

namespace foretoken::proposer {
namespace {

using testing::Http2Type;

speculation::TargetFeatures ProjectedFeatures() {
  speculation::FeatureProjection projection = {.num_outputs = 512, .weight = std::vector<uint16_t>(size_t{512} * 1024)};
  return {.layers = {0, 1}, .target_hidden_size = 512, .projection = std::move(projection)};
}

// A drafter whose projection takes a mebibyte. Nobody asks it for trees.
class ProjectedProposer final : public Proposer {
 public:
  const ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<Session> Open(const SessionIntroduction&) override { return nullptr; }
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest>) override { return {}; }

 private:
  const ProposerDescription description_ = {
      .method = "projected", .features = std::make_shared<const speculation::TargetFeatures>(ProjectedFeatures())};
};

// The frame that ends the request of a call: gRPC's five bytes and the message.
testing::Http2Frame RequestOf(uint32_t stream_id, const std::string& message) {
  const std::string size = {'\0', '\0', '\0', '\0', static_cast<char>(message.size())};
  return {Http2Type::kData, testing::kEndStream, stream_id, size + message};
}

class ProjectionCallsTest : public ::testing::Test {
 protected:
  explicit ProjectionCallsTest(absl::Duration max_piece_time = absl::Hours(1))
      : service_(*ProposalService::Create({.limits = {.max_streams = 1, .max_piece_time = max_piece_time}},
                                          std::make_unique<ProjectedProposer>(), metrics_)),
        server_(*rpc::Server::Start({.listen_address = "127.0.0.1:0"}, {service_.get()})),
        stub_(v1::ProposalService::NewStub(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()))) {
    request_.set_digest(rpc::ProjectionDigest(rpc::ProjectionBytes(*ProjectedFeatures().projection)));
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", server_->port()); }
  grpc::Status Read() {
    grpc::ClientContext context;
    v1::ReadProjectionResponse piece;
    return stub_->ReadProjection(&context, request_, &piece);
  }
  // A client takes all places, and no piece: HTTP/2 lets a server send 64 KiB to a client that never says that it has
  // read them.
  void TakeAllPlaces(testing::RawHttp2& silent) {
    silent.Greet();
    for (int32_t call = 0; call < kMaxPieceCalls; ++call) {
      const auto stream_id = static_cast<uint32_t>(2 * call + 1);
      silent.Send(testing::RequestHeaders(stream_id, "/foretoken.v1.ProposalService/ReadProjection"));
      silent.Send({RequestOf(stream_id, request_.SerializeAsString())});
    }
    // All must have their places before another call could take one.
    int64_t num_answered = 0;
    for (const absl::Time end = absl::Now() + absl::Seconds(10); num_answered < kMaxPieceCalls && absl::Now() < end;) {
      num_answered += std::ranges::count(silent.ReadUntilClosed(absl::Milliseconds(20)), Http2Type::kHeaders,
                                         &testing::Http2Frame::type);
    }
    ASSERT_EQ(num_answered, kMaxPieceCalls);
  }
  grpc::Status ReadSoon() {  // as soon as a place is free
    grpc::Status status = Read();
    for (const absl::Time end = absl::Now() + absl::Seconds(10); !status.ok() && absl::Now() < end; status = Read()) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    return status;
  }

  telemetry::Metrics metrics_;
  std::unique_ptr<ProposalService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::ProposalService::Stub> stub_;
  v1::ReadProjectionRequest request_;
};

TEST_F(ProjectionCallsTest, PiecesThatNobodyTakesAreBoundedAndGiveTheirPlacesBack) {
  {
    testing::RawHttp2 silent(address());
    TakeAllPlaces(silent);
    const grpc::Status refused = Read();
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(refused.error_message(), "ReadProjection: expected at most 128 calls at a time, got one more");
  }
  const grpc::Status status = ReadSoon();  // once the server has seen that the connection is closed
  EXPECT_TRUE(status.ok()) << status.error_message();
}

class ShortProjectionCallsTest : public ProjectionCallsTest {
 protected:
  ShortProjectionCallsTest() : ProjectionCallsTest(absl::Seconds(2)) {}
};

TEST_F(ShortProjectionCallsTest, AClientThatStaysConnectedAndTakesNothingLosesItsPlaces) {
  testing::RawHttp2 silent(address());
  TakeAllPlaces(silent);
  const grpc::Status status = ReadSoon();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ProjectionCallsTest, ManyCallsOneAfterTheOtherAreAllAnswered) {
  for (int32_t call = 0; call < 2 * kMaxPieceCalls; ++call) EXPECT_TRUE(Read().ok()) << call;
}

}  // namespace
}  // namespace foretoken::proposer
