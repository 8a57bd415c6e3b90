// SPDX-License-Identifier: Apache-2.0
// The pool and a real proposal service whose proposer reads features of the target. If this test fails, drafters are
// refused that fit, used that do not, or miss features.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "common/rpc/feature_conversion.h"
#include "common/rpc/projection_file.h"
#include "common/rpc/server.h"
#include "proposer_service/proposal_service.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/fakes/feature_recorder.h"
#include "tests/testing/temp_dir.h"
#include "tests/verifier_service/proposers/pool_speaker.h"

namespace foretoken::verifier {
namespace {

using speculation::FeatureProjection;
using speculation::TargetFeatures;
using testing::FeatureRecorder;
using ::testing::HasSubstr;

constexpr rpc::TargetShape kShape = {.hidden_size = 16, .num_layers = 4};

TargetFeatures Projected(uint16_t weight) {
  FeatureProjection projection = {
      .num_outputs = 8, .norm = FeatureProjection::Norm::kWhole, .gains = std::vector<float>(32, 2), .eps = 1};
  projection.weight.assign(8 * 32, weight);
  return {.layers = {1, 4}, .target_hidden_size = 16, .projection = std::move(projection)};
}

// A served drafter.
class Drafter {
 public:
  explicit Drafter(TargetFeatures features, const proposer::SessionLimits& limits = {}, std::string method = "ngram",
                   const std::string& projection_directory = "")
      : method_(std::move(method)) {
    auto recorder = std::make_unique<FeatureRecorder>(std::move(features), method_);
    recorder_ = recorder.get();
    service_ =
        proposer::ProposalService::Create({.limits = limits, .draft = {.projection_directory = projection_directory}},
                                          std::move(recorder), metrics_)
            .value();
    server_ = rpc::Server::Start({.listen_address = "127.0.0.1:0"}, {service_.get()}).value();
  }
  std::string spec() const { return absl::StrCat(method_, "=static:127.0.0.1:", server_->port()); }
  std::unique_ptr<v1::ProposalService::Stub> Connect() const {
    return v1::ProposalService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()));
  }
  FeatureRecorder& recorder() { return *recorder_; }

 private:
  const std::string method_;
  telemetry::Metrics metrics_;
  FeatureRecorder* recorder_;
  std::unique_ptr<proposer::ProposalService> service_;
  std::unique_ptr<rpc::Server> server_;
};

ProposerPoolOptions Options() {
  ProposerPoolOptions options = PoolOptions();
  options.target = kShape;
  return options;
}

// Answers every demand with features whose first value is the position, like an engine that has computed `end`
// positions and knows features from `begin` on. Gives as many positions as the demand has, or all that there are.
void Supply(ProposerPool& pool, int32_t begin, int32_t end) {
  for (const FeatureDemand& demand : pool.FeatureDemands()) {
    const int32_t first = std::max(demand.begin, begin), last = std::min(first + demand.end - demand.begin, end);
    if (first >= last) continue;
    std::vector<uint16_t> values(static_cast<size_t>(last - first) * demand.source->width());
    for (int32_t p = first; p < last; ++p) values[(p - first) * demand.source->width()] = static_cast<uint16_t>(p);
    pool.GiveFeatures(demand, first, std::move(values));
  }
  pool.Flush({});
}

TEST(ProposerFeatures, TheProjectionArrivesWhole) {
  for (const TargetFeatures& features : {Projected(7), TargetFeatures{.layers = {2}, .target_hidden_size = 16},
                                         TargetFeatures{.target_hidden_size = 16}}) {
    Drafter drafter(features);
    const auto pool = MakePool({drafter.spec()}, Options());
    ASSERT_TRUE(IsConnected(*pool));
    ASSERT_EQ(pool->FeatureSources().size(), 1);
    EXPECT_EQ(*pool->FeatureSources()[0], features);
  }
}

TEST(ProposerFeatures, ALargeProjectionArrivesInPieces) {
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

TEST(ProposerFeatures, CreditComesBeforeTheFirstSession) {
  Drafter drafter(Projected(7));
  const auto stub = drafter.Connect();
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kLong));
  const auto stream = stub->Propose(&context);
  v1::ProposeResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.feature_credit_bytes(), 16 << 20);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ProposerFeatures, NoMoreKindsOfFeaturesThanTheBoundAreUsed) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  std::string spec = "ngram=";
  for (uint16_t weight = 1; weight <= 4; ++weight) {  // all read their projections at the same time
    drafters.push_back(std::make_unique<Drafter>(Projected(weight)));
    absl::StrAppend(&spec, weight > 1 ? "," : "", drafters.back()->spec().substr(6));
  }
  ProposerPoolOptions options = Options();
  options.max_feature_sources = 2;
  const testing::CapturedLog log;
  const auto pool = MakePool({spec}, options);
  EXPECT_TRUE(Eventually([&] { return pool->GetStatus()[0].num_connected == 2; }));
  EXPECT_TRUE(Eventually([&] {
    return std::ranges::count_if(log.Lines(), [](const std::string& line) {
             return absl::StrContains(line, "other features than the 2 kinds");
           }) == 2;
  }));
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 2);
  EXPECT_EQ(pool->FeatureSources().size(), 2);
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
TEST(ProposerFeatures, NoMoreProjectionsThanTheBoundAreReadAtATime) {
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

TEST(ProposerFeatures, AProjectionIsReadFromOneReplicaAtATime) {
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

TEST(ProposerFeatures, AProjectionThatTheDrafterLeftInADirectoryIsReadThere) {
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

TEST(ProposerFeatures, ADrafterServesIfItCannotLeaveItsProjection) {
  const testing::CapturedLog log;
  Drafter drafter(Projected(7), {}, "ngram", "/nowhere");
  EXPECT_THAT(absl::StrJoin(log.Lines(), " "), HasSubstr("projection_directory: NOT_FOUND: cannot open /nowhere/"));
  EXPECT_TRUE(IsConnected(*MakePool({drafter.spec()}, Options())));
}

TEST(ProposerFeatures, AProjectionIsReadFromTheDrafterWhereAPipeHasItsName) {  // to open one waits for its writer
  const testing::TempDir directory;
  Drafter drafter(Projected(7));
  const std::string digest = rpc::ProjectionDigest(rpc::ProjectionBytes(*Projected(7).projection));
  ASSERT_EQ(mkfifo(rpc::ProjectionPath(directory.path(), digest).c_str(), 0600), 0);
  ProposerPoolOptions options = Options();
  options.projection_directory = directory.path();
  EXPECT_TRUE(IsConnected(*MakePool({drafter.spec()}, options)));
}

TEST(ProposerFeatures, AProjectionIsReadFromTheDrafterWhereItsFileHasOtherBytes) {
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
    EXPECT_THAT(absl::StrJoin(log.Lines(), " "), HasSubstr(".projection: expected a projection of 640 bytes"));
  }
}

TEST(ProposerFeatures, AProjectionWithAPieceOutOfBoundsIsRefused) {
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

TEST(ProposerFeatures, AProjectionInTooSmallPiecesIsRefused) {
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
TEST(ProposerFeatures, AProjectionThatTakesTooLongIsGivenUp) {
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
TEST(ProposerFeatures, ABusyReplicaIsAskedForTheSamePieceAgain) {
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

TEST(ProposerFeatures, APoolThatEndsDoesNotWaitForABusyReplica) {
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

TEST(ProposerFeatures, EqualDraftersShareTheirFeatures) {
  Drafter a(Projected(7)), b(Projected(7)), c(Projected(8));
  const auto pool = MakePool({absl::StrCat(a.spec(), ",", b.spec().substr(6), ",", c.spec().substr(6))}, Options());
  ASSERT_TRUE(IsConnected(*pool, 3));
  EXPECT_EQ(pool->FeatureSources().size(), 2);
}

TEST(ProposerFeatures, TheReadersOfASourceAreKnown) {
  Drafter a(Projected(7)), b(Projected(7)), other(Projected(8), {}, "suffix");
  const auto pool = MakePool({other.spec(), absl::StrCat(a.spec(), ",", b.spec().substr(6))}, Options());
  ASSERT_TRUE(Eventually([&] { return pool->GetStatus()[0].num_connected + pool->GetStatus()[1].num_connected == 3; }));
  std::vector<uint32_t> readers;
  for (const FeatureSource& source : pool->FeatureSources()) {
    readers.push_back(pool->ReadersOf(source));
    EXPECT_EQ(readers.back(), *source == Projected(8) ? 0b01 : 0b10);
  }
  EXPECT_EQ(readers.size(), 2);
  EXPECT_EQ(pool->ReadersOf(std::make_shared<const TargetFeatures>()), 0);
}

TEST(ProposerFeatures, EverySessionGetsEveryPosition) {
  Drafter drafter(Projected(7));
  const auto pool = MakePool({drafter.spec()}, Options());
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 7, /*num_prompt_tokens=*/2000);
  for (int step = 0; step < 10; ++step) {
    speaker.Step();
    Supply(*pool, /*begin=*/5, static_cast<int32_t>(speaker.num_tokens()) - 1);
  }
  EXPECT_TRUE(Eventually([&] {
    Supply(*pool, 5, static_cast<int32_t>(speaker.num_tokens()) - 1);
    return drafter.recorder().Features(0).size() == 2004;
  }));
  for (const auto& [position, value] : drafter.recorder().Features(0)) EXPECT_EQ(position, value);
  EXPECT_EQ(pool->GetCounters()[0].num_feature_bytes, 2004 * 16);
}

// A demand has room for few positions of such a drafter, and the verifier knows none of the first ones.
TEST(ProposerFeatures, FeaturesMayBeginBehindTheFirstDemand) {
  Drafter drafter({.layers = {2}, .target_hidden_size = rpc::kMaxFeatureWidth});
  ProposerPoolOptions options = Options();
  options.target = rpc::TargetShape{.hidden_size = rpc::kMaxFeatureWidth, .num_layers = 4};
  const auto pool = MakePool({drafter.spec()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 7, /*num_prompt_tokens=*/300);
  speaker.Step();
  EXPECT_TRUE(Eventually([&] {
    Supply(*pool, /*begin=*/200, /*end=*/300);
    return drafter.recorder().Features(0).size() == 100;
  }));
  EXPECT_EQ(drafter.recorder().Features(0).begin()->first, 200);
  for (const auto& [position, value] : drafter.recorder().Features(0)) EXPECT_EQ(position, value);
}

// A stream that breaks loses what its session had; the new session gets everything again.
TEST(ProposerFeatures, ASessionThatMovesGetsAllFeaturesAgain) {
  auto first = std::make_unique<Drafter>(Projected(7));
  Drafter second(Projected(7));
  const auto pool = MakePool({absl::StrCat(first->spec(), ",", second.spec().substr(6))}, Options());
  ASSERT_TRUE(IsConnected(*pool, 2));
  Speaker a(*pool, 1), b(*pool, 2);
  const auto has_all = [&](Drafter& drafter, size_t num_positions) {
    return Eventually([&] {
      Supply(*pool, 0, static_cast<int32_t>(a.num_tokens()) - 1);
      return drafter.recorder().Features(0).size() >= num_positions;
    });
  };
  a.Step();
  b.Step();
  ASSERT_TRUE(has_all(*first, 3));
  ASSERT_TRUE(has_all(second, 3));
  first.reset();
  for (int step = 0; step < 4; ++step) {
    a.Step();
    b.Step();
  }
  EXPECT_TRUE(has_all(second, 7));
  EXPECT_EQ(pool->FeatureSources().size(), 1);
}

TEST(ProposerFeatures, AProposerThatIsGoneStillCountsForAWhile) {
  std::atomic<int64_t> seconds = 1000;
  ProposerPoolOptions options = Options();
  options.now = [&] { return absl::FromUnixSeconds(seconds); };
  auto drafter = std::make_unique<Drafter>(Projected(7));
  const auto pool = MakePool({drafter->spec()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  ASSERT_EQ(pool->FeatureSources().size(), 1);
  drafter.reset();
  ASSERT_TRUE(Eventually([&] { return pool->GetStatus()[0].num_connected == 0; }));
  seconds += 50;
  EXPECT_EQ(pool->FeatureSources().size(), 1);
  seconds += 20;
  EXPECT_EQ(pool->FeatureSources().size(), 0);
}

// The engine has had no room for them. It is asked again after a minute.
TEST(ProposerFeatures, RefusedFeaturesAreNotUsedForAWhile) {
  const testing::CapturedLog log;
  std::atomic<int64_t> seconds = 1000;
  ProposerPoolOptions options = Options();
  options.now = [&] { return absl::FromUnixSeconds(seconds); };
  Drafter drafter(Projected(7));
  const auto pool = MakePool({drafter.spec()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  std::weak_ptr<const speculation::TargetFeatures> features = pool->FeatureSources().at(0);
  pool->RefuseFeatures(features.lock(), "its features: no room");
  EXPECT_THAT(pool->FeatureSources(), ::testing::IsEmpty());
  EXPECT_TRUE(Eventually([&] { return features.expired(); })) << "refused features take up to a GiB";
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
  const auto num_lines = [&] {
    return std::ranges::count_if(log.Lines(), [](const std::string& line) {
      return absl::StrContains(line, "not used: its features: no room");
    });
  };
  EXPECT_TRUE(Eventually([&] { return num_lines() == 1; })) << absl::StrJoin(log.Lines(), " ");
  seconds += 30;
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
  seconds += 40;
  EXPECT_TRUE(Eventually([&] { return pool->GetStatus()[0].num_connected == 1; }));
  EXPECT_EQ(pool->FeatureSources().size(), 1);
  EXPECT_EQ(num_lines(), 1);
}

struct Unfit {
  const char* why;
  TargetFeatures features;
  void (*change)(ProposerPoolOptions& options) = [](ProposerPoolOptions&) {};
};

class UnfitDrafter : public ::testing::TestWithParam<Unfit> {};

TEST_P(UnfitDrafter, IsRefusedByName) {
  const testing::CapturedLog log;
  Drafter drafter(GetParam().features);
  ProposerPoolOptions options = Options();
  GetParam().change(options);
  const auto pool = MakePool({drafter.spec()}, options);
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(absl::StrJoin(log.Lines(), " "), GetParam().why); }))
      << absl::StrJoin(log.Lines(), " ");
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Reasons, UnfitDrafter,
    ::testing::Values(Unfit{"not used: it needs the target's feature \"hidden_states.1\"", Projected(1),
                            [](ProposerPoolOptions& options) { options.target.reset(); }},
                      Unfit{"not used: needed_features: expected \"hidden_states.0\" to \"hidden_states.4\"",
                            {.layers = {5}, .target_hidden_size = 16}},
                      Unfit{"not used: target_hidden_size: expected 16, got 32",
                            {.layers = {1}, .target_hidden_size = 32}},
                      Unfit{"not used: its projection: expected at most 100 bytes, got 640", Projected(1),
                            [](ProposerPoolOptions& options) { options.max_projection_bytes = 100; }},
                      Unfit{"not used: it needs other features than the 0 kinds", Projected(1),
                            [](ProposerPoolOptions& options) { options.max_feature_sources = 0; }}));

}  // namespace
}  // namespace foretoken::verifier
