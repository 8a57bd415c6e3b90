// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/parse_message.h"

#include <string>

#include "foretoken/v1/generation.pb.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

constexpr char kNoUtf8[] = "\xff\xfe";
constexpr char kPlaceholder[] = "@@";  // as long

// The message's bytes, with every placeholder made something that is no UTF-8.
std::string Spoiled(const v1::GenerateRequest& request) {
  std::string bytes = request.SerializeAsString();
  for (size_t at; (at = bytes.find(kPlaceholder)) != std::string::npos;) bytes.replace(at, 2, kNoUtf8);
  return bytes;
}

absl::Status Parse(const std::string& bytes) {
  v1::GenerateRequest request;
  return ParseMessage(bytes, request);
}

TEST(ParseMessage, ReadsWhatIsSound) {
  v1::GenerateRequest request;
  request.set_text("gr\xc3\xbc\xc3\x9f");
  EXPECT_TRUE(Parse(request.SerializeAsString()).ok());
}

TEST(ParseMessage, NamesTheStringThatIsNotUtf8) {
  v1::GenerateRequest request;
  request.set_text(kPlaceholder);
  EXPECT_EQ(Parse(Spoiled(request)), absl::InvalidArgumentError("text: expected UTF-8, got another byte sequence"));
}

TEST(ParseMessage, NamesTheElementOfARepeatedFieldOfAMessage) {
  v1::GenerateRequest request;
  request.mutable_stopping()->add_stop_strings("sound");
  request.mutable_stopping()->add_stop_strings(kPlaceholder);
  EXPECT_EQ(FindInvalidUtf8(Spoiled(request), *request.GetDescriptor()), "stopping.stop_strings[1]");
}

TEST(ParseMessage, RefusesBytesThatAreNoMessage) {
  EXPECT_EQ(Parse("\x07garbage").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Parse("\x2a\xff\xff\xff\xff\x0f").code(), absl::StatusCode::kInvalidArgument);  // text of 4 GiB
}

TEST(ParseMessage, KeepsToItsDepth) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes = "\x53" + bytes + "\x54";  // groups, which nobody asked for
  EXPECT_EQ(Parse(bytes).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace foretoken::rpc
