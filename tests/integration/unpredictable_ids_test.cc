// SPDX-License-Identifier: Apache-2.0
// Request ids and seeds that a server makes. If this test fails, a client can compute other clients' ids from its own,
// for example because the server uses std::mt19937_64, whose next output follows from 312 earlier ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/integration/connect.h"

namespace foretoken {
namespace {

// The word of std::mt19937_64's state for an output.
uint64_t Untemper(uint64_t y) {
  y ^= y >> 43;
  y ^= (y << 37) & 0xFFF7EEE000000000u;
  uint64_t x = y;
  for (int i = 0; i < 4; ++i) x = y ^ ((x << 17) & 0x71D67FFFEDA60000u);
  y = x;
  for (int i = 0; i < 3; ++i) x = y ^ ((x >> 29) & 0x5555555555555555u);
  return x;
}

// How many of the outputs std::mt19937_64 would compute from the earlier ones.
int NumPredicted(const std::vector<uint64_t>& outputs) {
  constexpr size_t kStateWords = 312, kShift = 156;
  constexpr uint64_t kLowBits = 0x7FFFFFFF;
  int num_predicted = 0;
  for (size_t i = kStateWords; i < outputs.size(); ++i) {
    const uint64_t y =
        (Untemper(outputs[i - kStateWords]) & ~kLowBits) | (Untemper(outputs[i - kStateWords + 1]) & kLowBits);
    const uint64_t next =
        Untemper(outputs[i - kStateWords + kShift]) ^ (y >> 1) ^ ((y & 1) != 0 ? 0xB5026F5AA96619E9u : 0);
    num_predicted += next == Untemper(outputs[i]);
  }
  return num_predicted;
}

TEST(NumPredicted, PredictsTheCommonGenerator) {
  std::mt19937_64 generator(7);
  std::vector<uint64_t> outputs;
  for (int i = 0; i < 400; ++i) outputs.push_back(generator());
  EXPECT_EQ(NumPredicted(outputs), 400 - 312);
}

TEST(RequestIdsAndSeeds, CannotBePredictedFromEarlierOnes) {
  ServiceProcess verifier("foretoken_verifier", {});
  client::GenerationClient client = Connect(verifier);
  v1::GenerateRequest request;
  request.set_text("import os\n");
  request.mutable_stopping()->set_max_tokens(1);
  std::vector<uint64_t> outputs, swapped;  // for either order of an id's two halves
  for (int i = 0; i < 120; ++i) {
    const client::Generation generation = client.Generate(request).value();
    uint64_t high = 0, low = 0;
    ASSERT_EQ(generation.request_id.size(), 32);
    ASSERT_TRUE(absl::SimpleHexAtoi(generation.request_id.substr(0, 16), &high));
    ASSERT_TRUE(absl::SimpleHexAtoi(generation.request_id.substr(16), &low));
    const uint64_t seed = generation.samples.at(0).completion->seed();
    outputs.insert(outputs.end(), {high, low, seed});
    swapped.insert(swapped.end(), {low, high, seed});
  }
  EXPECT_EQ(NumPredicted(outputs), 0);
  EXPECT_EQ(NumPredicted(swapped), 0);
}

}  // namespace
}  // namespace foretoken
