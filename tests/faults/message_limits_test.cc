// SPDX-License-Identifier: Apache-2.0
// The memory that one message may take in the receiving process. If this test fails, a small message can fill a
// service's memory, because it is compressed, or because its fields take two bytes on the wire and many more when
// parsed.
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "foretoken/v1/proposal.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/fake_generation_service.h"
#include "tests/testing/fakes/scripted_proposer.h"
#include "tests/testing/unary_call.h"

namespace foretoken {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// A refused message takes a few times its own size: once as it arrives, and once in one piece. ThreadSanitizer keeps a
// shadow of all that, AddressSanitizer none that counts.
constexpr bool kHasShadow = absl::string_view(FORETOKEN_SANITIZER) == "thread";
constexpr int64_t kMaxGrowth = (kHasShadow ? 4 : 1) * 48 * kMiB;
constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

std::shared_ptr<grpc::Channel> ChannelTo(const ServiceProcess& service, grpc_compression_algorithm algorithm) {
  grpc::ChannelArguments arguments;
  arguments.SetCompressionAlgorithm(algorithm);
  return grpc::CreateCustomChannel(service.address(), grpc::InsecureChannelCredentials(), arguments);
}

// A protobuf field with this number and these bytes.
std::string Field(int number, const std::string& value) {
  std::string bytes(1, static_cast<char>(number << 3 | 2));
  size_t left = value.size();
  for (; left >= 128; left >>= 7) bytes.push_back(static_cast<char>(left | 128));
  bytes.push_back(static_cast<char>(left));
  return bytes + value;
}

std::string EmptyFields(int number, int64_t num_bytes) {
  std::string bytes;
  while (static_cast<int64_t>(bytes.size()) < num_bytes) bytes += Field(number, "");
  return bytes;
}

class MessageLimits : public ::testing::Test {
 protected:
  // The growth of the service's peak memory during the call.
  static int64_t Growth(ServiceProcess& service, const std::function<void()>& call) {
    service.process().ForgetPeakMemory();
    const int64_t before = service.process().PeakMemoryBytes();
    call();
    return service.process().PeakMemoryBytes() - before;
  }
};

TEST_F(MessageLimits, ACompressedMessageIsRefusedBeforeItIsInflated) {
  ServiceProcess proposer("foretoken_proposer", {});
  ServiceProcess verifier("foretoken_verifier", {});
  const std::string bomb = Field(5, std::string(96 * kMiB, 'x'));
  for (const auto& [service, method] : {std::pair(&verifier, "/foretoken.v1.GenerationService/Generate"),
                                        {&verifier, "/foretoken.v1.GenerationService/Tokenize"},
                                        {&verifier, "/grpc.health.v1.Health/Check"},
                                        {&proposer, "/foretoken.v1.ProposalService/Propose"},
                                        {&proposer, "/foretoken.v1.ProposalService/DescribeProposer"}}) {
    SCOPED_TRACE(method);
    for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
      const int64_t growth = Growth(*service, [&, service = service, method = method] {
        const grpc::Status status = testing::CallWithBytes(ChannelTo(*service, algorithm), method, bomb).status;
        EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
      });
      EXPECT_LT(growth, 16 * kMiB);
    }
  }
  EXPECT_TRUE(Connect(verifier).GetModelInfo().ok()) << "afterwards";
}

TEST_F(MessageLimits, AProposersCompressedAnswerIsRefusedBeforeItIsInflated) {
  testing::ScriptedProposer proposer({});
  proposer.SetBehaviour(testing::ScriptedProposer::Behaviour::kCompressedBomb);
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + proposer.address()});
  client::GenerationClient client = Connect(verifier);
  const int64_t growth =
      Growth(verifier, [&] { EXPECT_TRUE(WaitUntil([&] { return proposer.num_bombs() >= 2; })) << "comes again"; });
  EXPECT_LT(growth, 16 * kMiB);
  EXPECT_TRUE(client.GetModelInfo().ok());
}

TEST_F(MessageLimits, AServersCompressedAnswerIsRefusedByTheClient) {
  testing::FakeGenerationService service;
  service.set_script([](const auto&, grpc::ServerContext& context, const auto& write) {
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::GenerateResponse response;
    response.set_text(std::string(1000, 'x'));
    write(response);
    return grpc::Status::OK;
  });
  auto client = client::GenerationClient::Connect({.target = service.target()});
  ASSERT_TRUE(client.ok());
  v1::GenerateRequest request;
  request.set_text("x");
  EXPECT_EQ(client->Generate(request).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(MessageLimits, AMessageThatWouldGrowInParsingIsRefusedBefore) {
  ServiceProcess proposer("foretoken_proposer", {});
  ServiceProcess verifier("foretoken_verifier", {});
  struct Case {
    ServiceProcess& service;
    const char* method;
    std::string bytes;
  };
  const std::string packed_ids(15 * kMiB, '\x01');
  for (const Case& each :
       {Case{verifier, "/foretoken.v1.GenerationService/Generate",
             Field(11, EmptyFields(3, 15 * kMiB))},  // stop strings
        Case{verifier, "/foretoken.v1.GenerationService/Generate", Field(6, Field(1, packed_ids))},
        Case{verifier, "/foretoken.v1.GenerationService/Detokenize", Field(2, packed_ids)},
        Case{verifier, "/foretoken.v1.GenerationService/Abort", EmptyFields(15, 15 * kMiB)},
        Case{verifier, kReflection, EmptyFields(15, 15 * kMiB)},
        Case{proposer, kReflection, EmptyFields(15, 4 * kMiB - 64)},
        Case{proposer, "/foretoken.v1.ProposalService/Propose", EmptyFields(2, 4 * kMiB - 64)},
        Case{proposer, "/foretoken.v1.ProposalService/DescribeProposer", EmptyFields(15, 4 * kMiB - 64)},
        Case{proposer, "/foretoken.v1.ProposalService/ReadProjection", EmptyFields(15, 4 * kMiB - 64)}}) {
    SCOPED_TRACE(each.method);
    const int64_t growth = Growth(each.service, [&] {
      const grpc::Status status =
          testing::CallWithBytes(ChannelTo(each.service, GRPC_COMPRESS_NONE), each.method, each.bytes).status;
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    });
    EXPECT_LT(growth, kMaxGrowth);
  }
}

TEST_F(MessageLimits, AProposersDescriptionThatWouldGrowInParsingIsRefusedBefore) {
  testing::ScriptedProposer proposer({.unknown_fields = EmptyFields(15, 4 * kMiB - 1024)});
  proposer.Kill();
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + proposer.address()});
  const int64_t growth = Growth(verifier, [&] {
    proposer.Start();
    EXPECT_TRUE(WaitUntil([&] { return proposer.num_describes() >= 2; })) << "the verifier asks again";
  });
  EXPECT_LT(growth, kMaxGrowth);
  EXPECT_EQ(proposer.num_streams(), 0);
}

}  // namespace
}  // namespace foretoken
