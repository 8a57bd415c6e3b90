// SPDX-License-Identifier: Apache-2.0
// A client of a verifier process of a test.
#pragma once

#include "client/generation_client.h"
#include "tests/testing/service_process.h"

namespace foretoken {

using testing::ServiceProcess;

inline client::GenerationClient Connect(const ServiceProcess& verifier) {
  return client::GenerationClient::Connect({.target = verifier.address()}).value();
}

// The number of connected replicas of all proposers.
inline int NumConnected(client::GenerationClient& client) {
  const auto info = client.GetModelInfo();
  int num_connected = 0;
  for (const auto& proposer : info.value().proposers()) num_connected += static_cast<int>(proposer.num_connected());
  return num_connected;
}

}  // namespace foretoken
