// SPDX-License-Identifier: Apache-2.0
// Parsing of requests. If this test fails, a client with a bad request gets INTERNAL without a reason, or can crash or
// fill the log of a server.
#include "common/rpc/parse_message.h"

#include <string>

#include "common/rpc/status.h"
#include "foretoken/v1/generation.pb.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

constexpr char kNoUtf8[] = "\xff\xfe";
constexpr char kPlaceholder[] = "@@";  // of the same length

// The message's bytes, with every placeholder replaced by bytes that are not UTF-8.
std::string Spoiled(const v1::StoppingOptions& request) {
  std::string bytes = request.SerializeAsString();
  for (size_t at; (at = bytes.find(kPlaceholder)) != std::string::npos;) bytes.replace(at, 2, kNoUtf8);
  return bytes;
}

const MessageBounds& Bounds() {
  static const auto* const bounds = new MessageBounds(
      *v1::StoppingOptions::descriptor(),
      {{.path = "stop_strings", .max_count = 2, .max_bytes = 8}, {.path = "stop_token_ids", .max_count = 2}});
  return *bounds;
}

absl::Status Parse(const std::string& bytes) {
  v1::StoppingOptions message;
  return ParseMessage(bytes, Bounds(), message);
}

TEST(ParseMessage, ReadsAValidMessage) {
  v1::StoppingOptions message;
  message.add_stop_strings("gr\xc3\xbc\xc3\x9f");
  EXPECT_TRUE(Parse(message.SerializeAsString()).ok());
}

TEST(ParseMessage, NamesTheStringThatIsNotUtf8) {
  v1::StoppingOptions message;
  message.add_stop_strings("sound");
  message.add_stop_strings(kPlaceholder);
  EXPECT_EQ(Parse(Spoiled(message)), InvalidField("stop_strings[1]", "expected UTF-8, got another byte sequence"));
}

TEST(ParseMessage, RefusesMessagesBeyondTheBounds) {
  v1::StoppingOptions message;
  for (int i = 0; i < 3; ++i) message.add_stop_strings("");
  EXPECT_EQ(Parse(message.SerializeAsString()), InvalidField("stop_strings", "expected at most 2, got 3"));
}

TEST(ParseMessage, RefusesBytesThatAreNoMessage) {
  EXPECT_EQ(Parse("\x07garbage").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Parse("\x1a\xff\xff\xff\xff\x0f").code(), absl::StatusCode::kInvalidArgument);  // a field of 4 GiB
}

// gRPC gives a service an invalid buffer if the client ended its side of the call at once.
TEST(ParseMessage, RefusesACallWithoutAMessage) {
  v1::StoppingOptions message;
  EXPECT_EQ(ParseMessage(grpc::ByteBuffer(), Bounds(), message),
            absl::InvalidArgumentError("expected a foretoken.v1.StoppingOptions, got none"));
}

TEST(ParseMessage, KeepsToItsDepth) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes = "\x53" + bytes + "\x54";  // groups, which are unknown fields
  EXPECT_EQ(Parse(bytes).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace foretoken::rpc
