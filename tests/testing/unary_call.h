// SPDX-License-Identifier: Apache-2.0
// A call whose messages are given as bytes: like a client that checks nothing, and without the method's protos.
//
//   EXPECT_FALSE(CallWithBytes(channel, "/foretoken.v1.GenerationService/Generate", "\x07garbage").status.ok());
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

namespace foretoken::testing {

struct UnaryResult {
  grpc::Status status;
  std::string response;
};

inline UnaryResult CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                                 const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Minutes(2)));
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  UnaryResult result;
  grpc::ByteBuffer response;
  call->Finish(&response, &result.status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (result.status.ok() && !response.Dump(&slices).ok()) ADD_FAILURE() << "the response has no bytes";
  for (const grpc::Slice& part : slices) {
    result.response.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  return result;
}

}  // namespace foretoken::testing
