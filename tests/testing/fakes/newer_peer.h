// SPDX-License-Identifier: Apache-2.0
// A relay that makes both its sides look like a later version to each other: every message that passes has fields that
// this version does not know, in the message itself and in every message inside it.
//
//   NewerPeer newer(proposer.address());
//   ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + newer.address()});
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"

namespace foretoken::testing {

class NewerPeer : public grpc::CallbackGenericService {
 public:
  explicit NewerPeer(const std::string& target);
  ~NewerPeer() override;

  const std::string& address() const { return address_; }
  int64_t num_messages() const { return num_messages_; }  // that got further fields

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

  grpc::GenericStub stub_;
  std::string address_;
  std::atomic<int64_t> num_messages_{0};
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace foretoken::testing
