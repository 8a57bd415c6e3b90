// SPDX-License-Identifier: Apache-2.0
// gRPC's server reflection, version v1alpha: it describes the server's services to clients that have no protos, such as
// grpcurl. It takes the place of gRPC's own plugin, which parses a request of any size and keeps it, so that a message
// of 16 MiB takes half a GiB of memory. Here the bytes are checked first (message_bounds.h).
//
//   Reflection reflection({"foretoken.v1.GenerationService"});
//   builder.RegisterService(&reflection);
//
// Errors: RESOURCE_EXHAUSTED for a call beyond kMaxReflectionCalls; INVALID_ARGUMENT for a request that is out of
// bounds. A question without an answer gets an error as its answer, and the stream goes on.
// Threads: any. A call has no thread of its own.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "common/rpc/message_bounds.h"
#include "google/protobuf/descriptor.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

namespace foretoken::rpc {

namespace reflection_api = ::grpc::reflection::v1alpha;

// A call that does not read its answer holds one answer, of some hundred KiB.
inline constexpr int kMaxReflectionCalls = 16;

class Reflection final : public reflection_api::ServerReflection::WithRawCallbackMethod_ServerReflectionInfo<
                             reflection_api::ServerReflection::Service> {
 public:
  // Lists these services and its own. Describes what the pool has, by default all protos of the program.
  explicit Reflection(std::vector<std::string> service_names, const google::protobuf::DescriptorPool& pool =
                                                                  *google::protobuf::DescriptorPool::generated_pool());

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ServerReflectionInfo(
      grpc::CallbackServerContext* context) override;

  reflection_api::ServerReflectionResponse Answer(const reflection_api::ServerReflectionRequest& request) const;

 private:
  class Call;

  const google::protobuf::DescriptorPool& pool_;
  const std::vector<std::string> service_names_;
  const MessageBounds bounds_;
  std::atomic<int> num_calls_ = 0;
};

}  // namespace foretoken::rpc
