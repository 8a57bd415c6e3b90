// SPDX-License-Identifier: Apache-2.0
// Fields that are read before their message is parsed. If this test fails, a request counts for a wrong tenant or with
// a wrong number of samples until it is parsed, or a client's bytes crash the server.
#include "common/rpc/peek_field.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "foretoken/v1/generation.pb.h"

namespace foretoken::rpc {
namespace {

constexpr int kField = v1::GenerateRequest::kTenantFieldNumber;

// In slices of this many bytes, because a large message arrives in many.
grpc::ByteBuffer Slices(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += size) slices.emplace_back(bytes.substr(begin, size));
  return {slices.data(), slices.size()};
}

std::string Peek(const std::string& bytes, size_t max_bytes = 256) {
  const std::string whole = PeekString(Slices(bytes, bytes.size() + 1), {.number = kField, .max_bytes = max_bytes});
  EXPECT_EQ(PeekString(Slices(bytes, 3), {.number = kField, .max_bytes = max_bytes}), whole);
  return whole;
}

v1::GenerateRequest RequestOf(const std::string& tenant) {
  v1::GenerateRequest request;
  request.set_request_id("7");
  request.set_tenant(tenant);
  request.set_priority(-5);
  request.set_text(std::string(100'000, 'x'));
  request.mutable_sampling()->set_temperature(0.5);
  return request;
}

TEST(PeekString, FindsTheFieldOfAMessage) {
  EXPECT_EQ(Peek(RequestOf("a tenant").SerializeAsString()), "a tenant");
  EXPECT_EQ(Peek(RequestOf("").SerializeAsString()), "");
  EXPECT_EQ(Peek(""), "");
}

TEST(PeekString, TheLastOfTwoCountsAsInTheParsedMessage) {
  const std::string bytes = RequestOf("first").SerializeAsString() + RequestOf("last").SerializeAsString();
  v1::GenerateRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_EQ(Peek(bytes), parsed.tenant());
}

TEST(PeekNumber, FindsTheFieldOfTheMessageInAField) {
  const auto peek = [](const std::string& bytes) {
    return PeekNumber(Slices(bytes, 3), {.number = v1::GenerateRequest::kSamplingFieldNumber, .max_bytes = 64},
                      v1::SamplingOptions::kNFieldNumber);
  };
  v1::GenerateRequest request = RequestOf("a tenant");
  EXPECT_FALSE(peek(request.SerializeAsString()).has_value());
  request.mutable_sampling()->set_n(64);
  request.mutable_sampling()->set_seed(~uint64_t{0});
  EXPECT_EQ(peek(request.SerializeAsString()), 64u);
  v1::GenerateRequest later;
  later.mutable_sampling()->set_n(2);
  EXPECT_EQ(peek(request.SerializeAsString() + later.SerializeAsString()), 2u);
  EXPECT_FALSE(peek("").has_value());
  EXPECT_FALSE(peek("\x52\x01\x50").has_value()) << "the number is cut";
  EXPECT_FALSE(peek("\x52\x7f\x50\x07").has_value()) << "the message is cut";
}

TEST(PeekString, AFieldWithinAFieldIsAnother) {
  v1::GenerateRequest request;
  request.mutable_tokens()->add_ids(1);
  request.mutable_stopping()->add_stop_strings("\x1a\x03xyz");
  EXPECT_EQ(Peek(request.SerializeAsString()), "");
}

TEST(PeekString, ALongStringIsCut) {
  EXPECT_EQ(Peek(RequestOf(std::string(1000, 'a')).SerializeAsString(), 256), std::string(256, 'a'));
}

TEST(PeekString, AMessageOfManyFieldsIsNotReadToItsEnd) {
  std::string many;
  for (int i = 0; i < kMaxPeekedFields; ++i) many += std::string("\x20\x01", 2);  // priority: 1
  EXPECT_EQ(Peek(many.substr(2) + "\x1a\x01"
                                  "a"),
            "a");
  EXPECT_EQ(Peek(many + "\x1a\x01"
                        "a"),
            "");
}

TEST(PeekString, BytesThatAreNoMessageAreHarmless) {
  const std::string valid = RequestOf("a tenant").SerializeAsString().substr(0, 40);
  for (size_t length = 0; length < valid.size(); ++length) Peek(valid.substr(0, length));
  for (int byte = 0; byte < 256; ++byte) {
    Peek(std::string(1, static_cast<char>(byte)));
    Peek(std::string(20, static_cast<char>(byte)));
    Peek("\x1a" + std::string(9, static_cast<char>(byte)) + "tail");
  }
  EXPECT_EQ(Peek(std::string("\x1a\xff\xff\xff\xff\x0f", 6) + "short"), "") << "a length of 4 GiB";
}

}  // namespace
}  // namespace foretoken::rpc
