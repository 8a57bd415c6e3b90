// SPDX-License-Identifier: Apache-2.0
// The description of a server's services. If this test fails, grpcurl and grpc_cli cannot call a server, or a stranger
// can fill its memory with questions.
#include "common/rpc/reflection.h"

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "foretoken/v1/generation.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/testing/unary_call.h"

namespace foretoken::rpc {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using reflection_api::ServerReflectionRequest;
using reflection_api::ServerReflectionResponse;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr char kService[] = "foretoken.v1.GenerationService";
constexpr char kMethod[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

std::vector<std::string> NamesOfFiles(const ServerReflectionResponse& response) {
  std::vector<std::string> names;
  for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
    FileDescriptorProto file;
    EXPECT_TRUE(file.ParseFromString(bytes));
    names.push_back(file.name());
  }
  return names;
}

ServerReflectionResponse FileOf(const Reflection& reflection, const std::string& symbol) {
  ServerReflectionRequest request;
  request.set_file_containing_symbol(symbol);
  return reflection.Answer(request);
}

TEST(Reflection, ListsTheServices) {
  ServerReflectionRequest request;
  request.set_host("a host");
  request.set_list_services("*");
  const ServerReflectionResponse response = Reflection({kService}).Answer(request);
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) names.push_back(service.name());
  EXPECT_THAT(names,
              UnorderedElementsAre(kService, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"));
  EXPECT_EQ(response.valid_host(), "a host");
  EXPECT_EQ(response.original_request().list_services(), "*");
}

TEST(Reflection, DescribesServicesMethodsAndMessages) {
  const Reflection reflection({});
  for (const std::string symbol : {"foretoken.v1.GenerationService", "foretoken.v1.GenerationService.Generate",
                                   "foretoken.v1.GenerateRequest", "foretoken.v1.FINISH_REASON_LENGTH"}) {
    EXPECT_THAT(NamesOfFiles(FileOf(reflection, symbol)), ElementsAre("foretoken/v1/generation.proto", _, _)) << symbol;
  }
  EXPECT_EQ(FileOf(reflection, "foretoken.v1.Nothing").error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(FileOf(reflection, "").error_response().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(Reflection, AFileComesWithWhatItImports) {
  ServerReflectionRequest request;
  request.set_file_by_filename("foretoken/v1/proposal.proto");
  const Reflection reflection({});
  EXPECT_THAT(NamesOfFiles(reflection.Answer(request)),
              ElementsAre("foretoken/v1/proposal.proto", "foretoken/v1/token_tree.proto"));
  request.set_file_by_filename("foretoken/v1/nothing.proto");
  EXPECT_EQ(reflection.Answer(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(Reflection, FindsExtensions) {
  FileDescriptorProto base, extending;
  base.set_name("base.proto");
  base.set_package("p");
  base.add_message_type()->set_name("Open");
  auto& range = *base.mutable_message_type(0)->add_extension_range();
  range.set_start(100);
  range.set_end(200);
  extending.set_name("extending.proto");
  extending.add_dependency("base.proto");
  FieldDescriptorProto& extension = *extending.add_extension();
  extension.set_name("more");
  extension.set_number(107);
  extension.set_extendee(".p.Open");
  extension.set_type(FieldDescriptorProto::TYPE_INT32);
  extension.set_label(FieldDescriptorProto::LABEL_OPTIONAL);
  DescriptorPool pool;
  ASSERT_NE(pool.BuildFile(base), nullptr);
  ASSERT_NE(pool.BuildFile(extending), nullptr);
  const Reflection reflection({}, pool);

  ServerReflectionRequest numbers;
  numbers.set_all_extension_numbers_of_type("p.Open");
  const ServerReflectionResponse known = reflection.Answer(numbers);
  EXPECT_EQ(known.all_extension_numbers_response().base_type_name(), "p.Open");
  EXPECT_THAT(known.all_extension_numbers_response().extension_number(), ElementsAre(107));
  numbers.set_all_extension_numbers_of_type("p.Nothing");
  EXPECT_EQ(reflection.Answer(numbers).error_response().error_code(), grpc::StatusCode::NOT_FOUND);

  ServerReflectionRequest file;
  file.mutable_file_containing_extension()->set_containing_type("p.Open");
  file.mutable_file_containing_extension()->set_extension_number(107);
  EXPECT_THAT(NamesOfFiles(reflection.Answer(file)), ElementsAre("extending.proto", "base.proto"));
  file.mutable_file_containing_extension()->set_extension_number(108);
  EXPECT_EQ(reflection.Answer(file).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  file.mutable_file_containing_extension()->set_containing_type("p.Nothing");
  EXPECT_EQ(reflection.Answer(file).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
}

// A server with its own channel, as a client of reflection sees it.
class ServedReflection : public ::testing::Test {
 protected:
  using Stream = grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>;
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream;
  };

  std::unique_ptr<Call> Open() {
    auto call = std::make_unique<Call>();
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    call->stream = stub_->ServerReflectionInfo(&call->context);
    return call;
  }
  // The status that ends the call; OK: the call goes on.
  static grpc::Status Ask(Call& call, const ServerReflectionRequest& request) {
    ServerReflectionResponse response;
    if (call.stream->Write(request) && call.stream->Read(&response)) return grpc::Status::OK;
    return call.stream->Finish();
  }

  const std::unique_ptr<Server> server_ =
      Server::Start({.listen_address = "127.0.0.1:0", .service_names = {kService}}, {}).value();
  const std::shared_ptr<grpc::Channel> channel_ =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials());
  const std::unique_ptr<reflection_api::ServerReflection::Stub> stub_ =
      reflection_api::ServerReflection::NewStub(channel_);
};

TEST_F(ServedReflection, AnswersEveryQuestionOfAStream) {
  const auto call = Open();
  ServerReflectionRequest list, unknown, nothing;
  list.set_list_services("");
  unknown.set_file_by_filename("nothing");
  for (const ServerReflectionRequest& request : {list, unknown, nothing, list}) {
    EXPECT_TRUE(Ask(*call, request).ok()) << request.ShortDebugString();
  }
  call->stream->WritesDone();
  EXPECT_TRUE(call->stream->Finish().ok());
}

TEST_F(ServedReflection, RefusesCallsBeyondTheBound) {
  ServerReflectionRequest list;
  list.set_list_services("");
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < kMaxReflectionCalls; ++i) {
    calls.push_back(Open());
    ASSERT_TRUE(Ask(*calls.back(), list).ok());
  }
  EXPECT_EQ(Ask(*Open(), list).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  calls.pop_back();  // it cancels the call
  grpc::Status status;
  for (int attempt = 0; attempt < 1000 && !(status = Ask(*Open(), list)).ok(); ++attempt) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(status.ok()) << "an ended call makes room";
}

TEST_F(ServedReflection, RefusesARequestThatIsOutOfBounds) {
  ServerReflectionRequest request;
  request.set_file_containing_symbol(std::string(1024, 'x'));
  EXPECT_TRUE(Ask(*Open(), request).ok());
  request.set_file_containing_symbol(std::string(1025, 'x'));
  EXPECT_EQ(Ask(*Open(), request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(testing::CallWithBytes(channel_, kMethod, "\x07garbage").status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace foretoken::rpc
