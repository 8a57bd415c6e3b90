// SPDX-License-Identifier: Apache-2.0
// Reads a server's health.
//
//   EXPECT_EQ(CheckHealth(channel), Health::kServing);
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

namespace foretoken::testing {

enum class Health { kServing, kNotServing, kUnreachable };

// Calls grpc.health.v1.Health/Check with hand-written messages, because its proto is not installed. The request's only
// field is the service, and the answer's only field is the status.
inline Health CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service = {}) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  const grpc::Slice request(service.empty() ? service : absl::StrCat("\x0a", std::string(1, service.size()), service));
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&request, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return Health::kUnreachable;
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(response.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes == std::string("\x08\x01", 2) ? Health::kServing : Health::kNotServing;
}

}  // namespace foretoken::testing
