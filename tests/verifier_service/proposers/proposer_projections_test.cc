// SPDX-License-Identifier: Apache-2.0
// How the pool gets the projection of a drafter: in pieces from its replica, or from a directory that both share. If
// this test fails, a drafter is not used, a hostile or hanging one holds the verifier up, or its features are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "common/rpc/projection_file.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/temp_dir.h"
#include "tests/verifier_service/proposers/feature_drafter.h"

namespace foretoken::verifier {
namespace {

using speculation::FeatureProjection;
using speculation::TargetFeatures;
using ::testing::HasSubstr;

TEST(ProposerProjections, TheProjectionArrivesWhole) {
  for (const TargetFeatures& features : {Projected(7), TargetFeatures{.layers = {2}, .target_hidden_size = 16},
                                         TargetFeatures{.target_hidden_size = 16}}) {
    Drafter drafter(features);
    const auto pool = MakePool({drafter.spec()}, Options());
    ASSERT_TRUE(IsConnected(*pool));
    ASSERT_EQ(pool->FeatureSources().size(), 1);
    EXPECT_EQ(*pool->FeatureSources()[0], features);
  }
}

TEST(ProposerProjections, ALargeProjectionArrivesInPieces) {
  FeatureProjection projection = {.num_outputs = 4096};
  for (size_t i = 0; i < size_t{4096} * 1024; ++i) projection.weight.push_back(static_cast<uint16_t>(i * 7));
  const TargetFeatures features = {.layers = {2}, .target_hidden_size = 1024, .projection = std::move(projection)};
  Drafter drafter(features);
  ProposerPoolOptions options = Options();
  options.target = rpc::TargetShape{.hidden_size = 1024, .num_layers = 4};
  const auto pool = MakePool({drafter.spec()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  EXPECT_EQ(*pool->FeatureSources()[0], features);
}

// Answers as a drafter does, but its projection comes only when the test says so, and slowly if the test wants that.
// The bytes of further fields, if the test gives them, are merged into each piece.
class HeldProjection : public v1::ProposalService::Service {
 public:
  explicit HeldProjection(const Drafter& drafter, std::string further_fields = "", absl::Duration pause = {})
      : drafter_(drafter.Connect()), further_fields_(std::move(further_fields)), pause_(pause) {
    server_ = rpc::Server::Start({.listen_address = "127.0.0.1:0"}, {this}).value();
  }
  ~HeldProjection() override { Release(); }
  std::string address() const { return absl::StrCat("127.0.0.1:", server_->port()); }
  bool is_read() const {
    absl::MutexLock lock(&mutex_);
    return is_read_;
  }
  void Release() {
    absl::MutexLock lock(&mutex_);
    is_released_ = true;
  }
  // The piece at the offset is refused so many times.
  void Refuse(uint64_t offset, int num_times) {
    absl::MutexLock lock(&mutex_);
    refused_offset_ = offset;
    num_refusals_left_ = num_times;
  }
  std::vector<uint64_t> offsets() const {  // that were asked for
    absl::MutexLock lock(&mutex_);
    return offsets_;
  }

  grpc::Status DescribeProposer(grpc::ServerContext*, const v1::DescribeProposerRequest* request,
                                v1::DescribeProposerResponse* response) override {
    grpc::ClientContext context;
    return drafter_->DescribeProposer(&context, *request, response);
  }
  grpc::Status ReadProjection(grpc::ServerContext*, const v1::ReadProjectionRequest* request,
                              v1::ReadProjectionResponse* response) override {
    {
      absl::MutexLock lock(&mutex_);
      is_read_ = true;
      offsets_.push_back(request->offset());
      mutex_.Await(absl::Condition(&is_released_));
      if (request->offset() == refused_offset_ && num_refusals_left_ > 0) {
        --num_refusals_left_;
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "busy"};
      }
    }
    absl::SleepFor(pause_);
    grpc::ClientContext context;
    const grpc::Status status = drafter_->ReadProjection(&context, *request, response);
    EXPECT_TRUE(response->MergeFromString(further_fields_));
    return status;
  }

 private:
  const std::unique_ptr<v1::ProposalService::Stub> drafter_;
  const std::string further_fields_;
  const absl::Duration pause_;  // before each piece
  mutable absl::Mutex mutex_;
  bool is_read_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_released_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> offsets_ ABSL_GUARDED_BY(mutex_);
  uint64_t refused_offset_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_refusals_left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<rpc::Server> server_;
};

// Each projection may take a GiB while it is read, so readers count as the kinds that they will be.
TEST(ProposerProjections, NoMoreProjectionsThanTheBoundAreReadAtATime) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  std::vector<std::unique_ptr<HeldProjection>> held;
  std::vector<std::string> addresses;
  for (uint16_t weight = 1; weight <= 4; ++weight) {
    drafters.push_back(std::make_unique<Drafter>(Projected(weight)));
    held.push_back(std::make_unique<HeldProjection>(*drafters.back()));
    addresses.push_back(held.back()->address());
  }
  ProposerPoolOptions options = Options();
  options.max_feature_sources = 2;
  const testing::CapturedLog log;
  const auto pool = MakePool({absl::StrCat("ngram=static:", absl::StrJoin(addresses, ","))}, options);
  EXPECT_TRUE(Eventually([&] {
    return std::ranges::count_if(log.Lines(), [](const std::string& line) {
             return absl::StrContains(line, "other features than the 2 kinds");
           }) == 2;
  }));
  EXPECT_LE(std::ranges::count_if(held, [](const auto& drafter) { return drafter->is_read(); }), 2);
  for (const auto& drafter : held) drafter->Release();
  EXPECT_TRUE(Eventually([&] { return pool->FeatureSources().size() == 2; }));
}

TEST(ProposerProjections, AProjectionIsReadFromOneReplicaAtATime) {
  Drafter drafter(Projected(7));
  HeldProjection a(drafter), b(drafter);
  const auto pool = MakePool({absl::StrCat("ngram=static:", a.address(), ",", b.address())}, Options());
  ASSERT_TRUE(Eventually([&] { return a.is_read() || b.is_read(); }));
  absl::SleepFor(absl::Milliseconds(500));  // two further questions
  EXPECT_FALSE(a.is_read() && b.is_read());
  a.Release();
  b.Release();
  EXPECT_TRUE(Eventually([&] { return pool->FeatureSources().size() == 1; }));
}

TEST(ProposerProjections, AProjectionThatTheDrafterLeftInADirectoryIsReadThere) {
  const testing::TempDir directory;
  Drafter drafter(Projected(7), {}, "ngram", directory.path());
  HeldProjection held(drafter);
  ProposerPoolOptions options = Options();
  options.projection_directory = directory.path();
  const auto pool = MakePool({absl::StrCat("ngram=static:", held.address())}, options);
  ASSERT_TRUE(Eventually([&] { return pool->FeatureSources().size() == 1; }));
  EXPECT_EQ(*pool->FeatureSources()[0], Projected(7));
  EXPECT_FALSE(held.is_read());
}

TEST(ProposerProjections, ADrafterServesIfItCannotLeaveItsProjection) {
  const testing::CapturedLog log;
  Drafter drafter(Projected(7), {}, "ngram", "/nowhere");
  EXPECT_THAT(absl::StrJoin(log.Lines(), " "), HasSubstr("projection_directory: NOT_FOUND: cannot open /nowhere/"));
  EXPECT_TRUE(IsConnected(*MakePool({drafter.spec()}, Options())));
}

TEST(ProposerProjections, AProjectionIsReadFromTheDrafterWhereAPipeHasItsName) {  // to open one waits for its writer
  const testing::TempDir directory;
  Drafter drafter(Projected(7));
  const std::string digest = rpc::ProjectionDigest(rpc::ProjectionBytes(*Projected(7).projection));
  ASSERT_EQ(mkfifo(rpc::ProjectionPath(directory.path(), digest).c_str(), 0600), 0);
  ProposerPoolOptions options = Options();
  options.projection_directory = directory.path();
  EXPECT_TRUE(IsConnected(*MakePool({drafter.spec()}, options)));
}

TEST(ProposerProjections, AProjectionIsReadFromTheDrafterWhereItsFileHasOtherBytes) {
  const std::string bytes = rpc::ProjectionBytes(*Projected(7).projection);
  std::string changed = bytes;
  changed.back() ^= 1;
  for (const std::string& other : {changed, bytes + "0", bytes.substr(1), std::string()}) {
    const testing::TempDir directory;
    Drafter drafter(Projected(7));
    const testing::CapturedLog log;
    directory.Write(rpc::ProjectionDigest(bytes) + ".projection", other);
    ProposerPoolOptions options = Options();
    options.projection_directory = directory.path();
    const auto pool = MakePool({drafter.spec()}, options);
    ASSERT_TRUE(IsConnected(*pool));
    EXPECT_EQ(*pool->FeatureSources()[0], Projected(7));
    EXPECT_TRUE(Eventually([&] {
      return absl::StrContains(absl::StrJoin(log.Lines(), " "), ".projection: expected a projection of 640 bytes");
    })) << absl::StrJoin(log.Lines(), " ");
  }
}

TEST(ProposerProjections, AFileAndADrafterThatAreBothWrongDoNotFillTheLog) {
  const testing::TempDir directory;
  Drafter drafter(Projected(7));
  HeldProjection wrong(drafter, /*further_fields=*/std::string("\x0a\x01\x00", 3));  // `data` of one byte
  wrong.Release();
  directory.Write(rpc::ProjectionDigest(rpc::ProjectionBytes(*Projected(7).projection)) + ".projection", "other");
  ProposerPoolOptions options = Options();
  options.projection_directory = directory.path();
  const testing::CapturedLog log;
  const auto pool = MakePool({absl::StrCat("ngram=static:", wrong.address())}, options);
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (wrong.offsets().size() < 8 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_GE(wrong.offsets().size(), 8);
  const std::vector<std::string> lines = log.Lines();
  EXPECT_LE(lines.size(), 7) << absl::StrJoin(lines, "\n");
  EXPECT_THAT(absl::StrJoin(lines, " "), HasSubstr("expected a projection of 640 bytes"));
}

TEST(ProposerProjections, AProjectionWithAPieceOutOfBoundsIsRefused) {
  const testing::CapturedLog log;
  Drafter drafter(Projected(7));
  std::string unknown_fields;
  for (int i = 0; i < 40'000; ++i) unknown_fields += std::string("\x7a\x00", 2);
  HeldProjection spoiled(drafter, unknown_fields);
  spoiled.Release();
  const auto pool = MakePool({absl::StrCat("ngram=static:", spoiled.address())}, Options());
  EXPECT_TRUE(Eventually([&] {
    return std::ranges::any_of(log.Lines(), [](const std::string& line) {
      return absl::StrContains(line, "ReadProjection: expected at most 65536 bytes of unknown fields, got 80000");
    });
  })) << absl::StrJoin(log.Lines(), " ");
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
}

TEST(ProposerProjections, AProjectionInTooSmallPiecesIsRefused) {
  const testing::CapturedLog log;
  Drafter drafter(Projected(7));
  HeldProjection slow(drafter, /*further_fields=*/std::string("\x0a\x01\x00", 3));  // `data` of one byte
  slow.Release();
  const auto pool = MakePool({absl::StrCat("ngram=static:", slow.address())}, Options());
  EXPECT_TRUE(Eventually([&] {
    return std::ranges::any_of(
        log.Lines(), [](const std::string& line) { return absl::StrContains(line, "bytes at offset 0, got 1"); });
  })) << absl::StrJoin(log.Lines(), " ");
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
}

// Each piece comes in time, but a projection has up to 1,024 of them, and other replicas wait for it.
TEST(ProposerProjections, AProjectionThatTakesTooLongIsGivenUp) {
  FeatureProjection projection = {.num_outputs = 4096, .weight = std::vector<uint16_t>(size_t{4096} * 1024, 7)};
  Drafter drafter({.layers = {2}, .target_hidden_size = 1024, .projection = std::move(projection)});
  HeldProjection slow(drafter, /*further_fields=*/"", /*pause=*/absl::Milliseconds(100));  // 8 pieces
  slow.Release();
  ProposerPoolOptions options = Options();
  options.target = rpc::TargetShape{.hidden_size = 1024, .num_layers = 4};
  options.projection_timeout = absl::Milliseconds(350);
  const testing::CapturedLog log;
  const auto pool = MakePool({absl::StrCat("ngram=static:", slow.address())}, options);
  EXPECT_TRUE(Eventually([&] {
    return std::ranges::any_of(log.Lines(), [](const std::string& line) {
      return absl::StrContains(line, "ReadProjection: \"Deadline Exceeded\"");
    });
  })) << absl::StrJoin(log.Lines(), " ");
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
}

// It has as many calls as it takes, which passes.
TEST(ProposerProjections, ABusyReplicaIsAskedForTheSamePieceAgain) {
  FeatureProjection projection = {.num_outputs = 2048, .weight = std::vector<uint16_t>(size_t{2048} * 1024, 7)};
  Drafter drafter({.layers = {2}, .target_hidden_size = 1024, .projection = std::move(projection)});
  HeldProjection busy(drafter);  // 4 pieces
  busy.Refuse(/*offset=*/2 << 20, /*num_times=*/2);
  busy.Release();
  ProposerPoolOptions options = Options();
  options.target = rpc::TargetShape{.hidden_size = 1024, .num_layers = 4};
  const auto pool = MakePool({absl::StrCat("ngram=static:", busy.address())}, options);
  ASSERT_TRUE(Eventually([&] { return pool->FeatureSources().size() == 1; }));
  EXPECT_THAT(busy.offsets(), ::testing::ElementsAre(0, 1 << 20, 2 << 20, 2 << 20, 2 << 20, 3 << 20));
}

// While one reads, its equals wait.
TEST(ProposerProjections, AReplicaThatIsAlwaysBusyKeepsNoOtherOneWaiting) {
  Drafter drafter(Projected(7));
  HeldProjection busy(drafter), good(drafter);
  busy.Refuse(/*offset=*/0, /*num_times=*/1'000'000);
  busy.Release();
  good.Release();
  ProposerPoolOptions options = Options();
  options.resolve = [&](const std::string&) {
    std::vector<std::string> addresses = {busy.address()};
    if (busy.is_read()) addresses.push_back(good.address());  // so the other one reads first
    return addresses;
  };
  const testing::CapturedLog log;
  const auto pool = MakePool({"ngram=dns:///drafter:1"}, options);
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (pool->FeatureSources().empty() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(pool->FeatureSources().size(), 1);
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(absl::StrJoin(log.Lines(), " "), "ReadProjection: \"busy\"");
  })) << absl::StrJoin(log.Lines(), " ");
}

TEST(ProposerProjections, APoolThatEndsDoesNotWaitForABusyReplica) {
  Drafter drafter(Projected(7));
  HeldProjection busy(drafter);
  busy.Refuse(/*offset=*/0, /*num_times=*/1'000'000);
  busy.Release();
  auto pool = MakePool({absl::StrCat("ngram=static:", busy.address())}, Options());
  ASSERT_TRUE(Eventually([&] { return busy.offsets().size() >= 2; }));
  const absl::Time began = absl::Now();
  pool.reset();
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
}

}  // namespace
}  // namespace foretoken::verifier
