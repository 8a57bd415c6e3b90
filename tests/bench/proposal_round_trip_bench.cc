// SPDX-License-Identifier: Apache-2.0
// Measures the proposal round trip over loopback gRPC: 16 sequences advance by a token and get their 32-node trees. The
// same run measures a bare synchronous stream that answers the same requests with a ready response of the same size.
//
//   proposal_round_trip_bench [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "grpcpp/create_channel.h"
#include "kernels/check.h"
#include "proposer_service/proposal_service.h"

namespace foretoken::proposer {
namespace {

constexpr int32_t kNumSequences = 16;
constexpr int32_t kNodeBudget = 32;
constexpr int32_t kContextTokens = 1024;
constexpr int32_t kPeriod = 200;  // the text loops, so every tree is full

int32_t TokenAt(uint64_t position, int32_t sequence) {
  return static_cast<int32_t>((position + sequence * 7) % kPeriod);
}

// Answers every request with the first answer of the real service.
class BareService : public v1::ProposalService::Service {
 public:
  explicit BareService(v1::ProposeResponse response) : response_(std::move(response)) {}
  grpc::Status Propose(grpc::ServerContext*,
                       grpc::ServerReaderWriter<v1::ProposeResponse, v1::ProposeRequest>* stream) override {
    v1::ProposeRequest request;
    while (stream->Read(&request)) stream->Write(response_);
    return grpc::Status::OK;
  }

 private:
  v1::ProposeResponse response_;
};

struct Result {
  std::vector<double> round_trips_us;  // sorted
  v1::ProposeResponse last_response;
};

Result Measure(grpc::Service* service, int32_t num_rounds) {
  const auto server = *rpc::Server::Start({.listen_address = "127.0.0.1:0"}, {service});
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials());
  const auto stub = v1::ProposalService::NewStub(channel);
  Result result;
  {
    grpc::ClientContext context;
    const auto stream = stub->Propose(&context);
    v1::ProposeRequest request;
    for (int32_t i = 0; i < kNumSequences; ++i) {
      v1::OpenSession* open = request.add_opens();
      open->set_session_id(i);
      open->set_node_budget(kNodeBudget);
      for (int32_t position = 0; position < kContextTokens; ++position) open->add_token_ids(TokenAt(position, i));
    }
    stream->Write(request);
    stream->Read(&result.last_response);
    for (int32_t round = 0; round < num_rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      request.Clear();
      for (int32_t i = 0; i < kNumSequences; ++i) {
        v1::AdvanceSession* advance = request.add_advances();
        advance->set_session_id(i);
        advance->set_base_position(kContextTokens + round);
        advance->set_node_budget(kNodeBudget);
        advance->add_token_ids(TokenAt(kContextTokens + round, i));
      }
      stream->Write(request);
      FT_CHECK(stream->Read(&result.last_response));
      const auto end = std::chrono::steady_clock::now();
      FT_CHECK(result.last_response.trees_size() == kNumSequences);
      FT_CHECK(result.last_response.trees(0).token_ids_size() == kNodeBudget);
      result.round_trips_us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    }
    stream->WritesDone();
    FT_CHECK(stream->Finish().ok());
  }
  std::sort(result.round_trips_us.begin(), result.round_trips_us.end());
  return result;
}

void Print(const char* name, const std::vector<double>& sorted_us) {
  std::printf("%-28s median %7.1f us   p90 %7.1f us   p99 %7.1f us\n", name, sorted_us[sorted_us.size() / 2],
              sorted_us[sorted_us.size() * 9 / 10], sorted_us[sorted_us.size() * 99 / 100]);
}

}  // namespace
}  // namespace foretoken::proposer

int main(int argc, char** argv) {
  using namespace foretoken::proposer;
  const int32_t num_rounds = argc > 1 ? std::atoi(argv[1]) : 5000;
  if (num_rounds < 1) {
    std::fprintf(stderr, "proposal_round_trip_bench [ROUNDS]: expected a number of rounds, got %s\n", argv[1]);
    return 1;
  }
  foretoken::telemetry::Metrics metrics;
  const auto service = *ProposalService::Create({}, metrics);
  std::printf("16 sequences, 32-node trees, loopback, %d rounds\n", num_rounds);
  for (int repetition = 0; repetition < 3; ++repetition) {
    const Result proposals = Measure(service.get(), num_rounds);
    BareService bare(proposals.last_response);
    Print("proposal round trip", proposals.round_trips_us);
    Print("bare synchronous stream", Measure(&bare, num_rounds).round_trips_us);
  }
  return 0;
}
