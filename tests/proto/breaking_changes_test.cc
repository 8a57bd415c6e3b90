// SPDX-License-Identifier: Apache-2.0
// The protos stay compatible with tests/cases/proto/foretoken.binpb, what was published last. After a compatible change
// `./dev protos` writes it anew; run it after an incompatible one only before anybody depends on the old one.
#include "tests/testing/breaking_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "absl/strings/string_view.h"
#include "tests/testing/paths.h"

namespace foretoken::testing {
namespace {

using google::protobuf::DescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

FileDescriptorSet Read(const std::string& path) {
  FileDescriptorSet set;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(set.ParseFromIstream(&file)) << path;
  return set;
}

FileDescriptorSet Published() { return Read(SourcePath("tests/cases/proto/foretoken.binpb")); }

FileDescriptorProto& GenerationFile(FileDescriptorSet& set) {
  for (FileDescriptorProto& file : *set.mutable_file()) {
    if (file.name() == "foretoken/v1/generation.proto") return file;
  }
  ADD_FAILURE() << "no generation.proto";
  return *set.mutable_file(0);
}

DescriptorProto& MessageOf(FileDescriptorSet& set, absl::string_view name) {
  for (DescriptorProto& message : *GenerationFile(set).mutable_message_type()) {
    if (message.name() == name) return message;
  }
  ADD_FAILURE() << "no message " << name;
  return *GenerationFile(set).mutable_message_type(0);
}

// Expects that this change to the published protos is found once, with this text.
void ExpectFound(const std::function<void(FileDescriptorSet&)>& change, const std::string& text) {
  FileDescriptorSet current = Published();
  change(current);
  const std::vector<std::string> findings = BreakingChanges(Published(), current);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0], HasSubstr(text));
}

TEST(OurProtos, BreakNobodyWhoUsesThePublishedOnes) {
  EXPECT_THAT(BreakingChanges(Published(), Read(FORETOKEN_DESCRIPTORS)), IsEmpty());
}

TEST(BreakingChanges, FindsAFieldThatVanished) {
  ExpectFound([](auto& set) { MessageOf(set, "AbortRequest").mutable_field()->RemoveLast(); },
              "field .foretoken.v1.AbortRequest#2: vanished");
}

TEST(BreakingChanges, FindsAFieldRenamed) {
  ExpectFound([](auto& set) { MessageOf(set, "AbortRequest").mutable_field(0)->set_name("id"); },
              "field .foretoken.v1.AbortRequest#1: was");
}

TEST(BreakingChanges, FindsATypeChanged) {
  ExpectFound(
      [](auto& set) { MessageOf(set, "AbortRequest").mutable_field(0)->set_type(FieldDescriptorProto::TYPE_BYTES); },
      "is \"request_id TYPE_BYTES");
}

TEST(BreakingChanges, FindsACardinalityChanged) {
  ExpectFound(
      [](auto& set) {
        MessageOf(set, "AbortRequest").mutable_field(0)->set_label(FieldDescriptorProto::LABEL_REPEATED);
      },
      "LABEL_REPEATED");
}

TEST(BreakingChanges, FindsAnOptionalFieldThatLostItsPresence) {
  ExpectFound([](auto& set) { MessageOf(set, "StoppingOptions").mutable_field(0)->clear_proto3_optional(); },
              "field .foretoken.v1.StoppingOptions#1");
}

TEST(BreakingChanges, FindsAFieldThatLeftItsOneof) {
  ExpectFound(
      [](auto& set) {
        for (FieldDescriptorProto& field : *MessageOf(set, "GenerateRequest").mutable_field()) {
          if (field.name() == "text") field.clear_oneof_index();
        }
      },
      "field .foretoken.v1.GenerateRequest#5");
}

TEST(BreakingChanges, FindsAnEnumValueRenamed) {
  ExpectFound([](auto& set) { GenerationFile(set).mutable_enum_type(0)->mutable_value(1)->set_name("OTHER"); },
              "is \"OTHER\"");
}

TEST(BreakingChanges, FindsAnRpcThatNoLongerStreams) {
  ExpectFound([](auto& set) { GenerationFile(set).mutable_service(0)->mutable_method(0)->clear_server_streaming(); },
              "rpc .foretoken.v1.GenerationService.Generate: was");
}

TEST(BreakingChanges, FindsAnRpcThatVanished) {
  ExpectFound([](auto& set) { GenerationFile(set).mutable_service(0)->mutable_method()->RemoveLast(); }, "vanished");
}

TEST(BreakingChanges, LetsAFieldBeAdded) {
  FileDescriptorSet current = Published();
  FieldDescriptorProto& field = *MessageOf(current, "AbortRequest").add_field();
  field.set_name("reason");
  field.set_number(3);
  EXPECT_THAT(BreakingChanges(Published(), current), IsEmpty());
}

}  // namespace
}  // namespace foretoken::testing
