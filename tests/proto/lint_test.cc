// SPDX-License-Identifier: Apache-2.0
// Our protos keep every rule, and every rule finds what breaks it.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/testing/proto_rules.h"

namespace foretoken::testing {
namespace {

using google::protobuf::FileDescriptorSet;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ProtoRule& Rule(const std::string& name) {
  for (const ProtoRule& rule : ProtoRules()) {
    if (rule.name == name) return rule;
  }
  ADD_FAILURE() << "no rule " << name;
  return ProtoRules().front();
}

FileDescriptorSet OurDescriptors() {
  FileDescriptorSet set;
  std::ifstream file(FORETOKEN_DESCRIPTORS, std::ios::binary);
  EXPECT_TRUE(set.ParseFromIstream(&file)) << FORETOKEN_DESCRIPTORS;
  return set;
}

class OurProtos : public ::testing::TestWithParam<ProtoRule> {};

TEST_P(OurProtos, Keep) { EXPECT_THAT(GetParam().check(OurDescriptors()), IsEmpty()); }

INSTANTIATE_TEST_SUITE_P(Rule, OurProtos, ::testing::ValuesIn(ProtoRules()),
                         [](const auto& info) { return info.param.name; });

// A set that breaks one rule, and what the rule finds. Sets are FileDescriptorSets in text form.
struct BadCase {
  std::string rule;
  std::string set;
  std::string finding;  // after "RULE: "
};

// A file a/v1/b.proto of package a.v1 with this in it.
std::string File(const std::string& content) {
  return "file { name: 'a/v1/b.proto' package: 'a.v1' syntax: 'proto3' " + content + " }";
}

std::string SecondFile(const std::string& options) {
  return "file { name: 'a/v1/c.proto' package: 'a.v1' syntax: 'proto3' options { " + options + " } }";
}

std::string Service(const std::string& content) { return File("service { name: 'XService' " + content + " }"); }

std::string Method(const std::string& request, const std::string& response) {
  return "method { name: 'Do' input_type: '.a.v1." + request + "' output_type: '.a.v1." + response + "' }";
}

std::string EnumValue(const std::string& name, int number) {
  return File("enum_type { name: 'Mode' value { name: '" + name + "' number: " + std::to_string(number) + " } }");
}

const std::vector<BadCase>& BadCases() {
  static const auto* const kCases = new std::vector<BadCase>{
      {"DIRECTORY_SAME_PACKAGE", File("") + "file { name: 'a/v1/c.proto' package: 'c.v1' }",
       "a/v1/c.proto: expected \"a.v1\", got \"c.v1\""},
      {"PACKAGE_DEFINED", "file { name: 'b.proto' }", "b.proto"},
      {"PACKAGE_DIRECTORY_MATCH", "file { name: 'a/b.proto' package: 'a.v1' }", "a/b.proto"},
      {"PACKAGE_NO_IMPORT_CYCLE",
       "file { name: 'a.proto' package: 'a' dependency: 'b.proto' } file { name: 'b.proto' package: 'b' dependency: "
       "'c.proto' } file { name: 'c.proto' package: 'a' }",
       "a"},
      {"PACKAGE_SAME_DIRECTORY", File("") + "file { name: 'other/c.proto' package: 'a.v1' }",
       "other/c.proto: expected \"a/v1\", got \"other\""},
      {"PACKAGE_LOWER_SNAKE_CASE", "file { name: 'b.proto' package: 'Aa.v1' }", "b.proto"},
      {"PACKAGE_VERSION_SUFFIX", "file { name: 'b.proto' package: 'a.b' }", "b.proto"},
      {"PACKAGE_VERSION_SUFFIX", "file { name: 'b.proto' package: 'a.v0' }", "b.proto"},
      {"PACKAGE_VERSION_SUFFIX", "file { name: 'b.proto' package: 'a.v1gamma' }", "b.proto"},
      {"FILE_LOWER_SNAKE_CASE", "file { name: 'a/v1/TokenTree.proto' }", "a/v1/TokenTree.proto"},
      {"IMPORT_NO_PUBLIC", File("dependency: 'x.proto' public_dependency: 0"), "a/v1/b.proto"},
      {"IMPORT_USED",
       "file { name: 'x.proto' package: 'x' message_type { name: 'X' } }" + File("dependency: 'x.proto'"),
       "a/v1/b.proto imports x.proto in vain"},
      {"SYNTAX_SPECIFIED", "file { name: 'b.proto' }", "b.proto"},
      {"PACKAGE_SAME_CSHARP_NAMESPACE", File("") + SecondFile("csharp_namespace: 'x'"),
       "a/v1/c.proto: expected \"\", got \"x\""},
      {"PACKAGE_SAME_GO_PACKAGE", File("") + SecondFile("go_package: 'x'"), "a/v1/c.proto: expected \"\", got \"x\""},
      {"PACKAGE_SAME_JAVA_MULTIPLE_FILES", File("") + SecondFile("java_multiple_files: true"),
       "a/v1/c.proto: expected \"false\", got \"true\""},
      {"PACKAGE_SAME_JAVA_PACKAGE", File("") + SecondFile("java_package: 'x'"),
       "a/v1/c.proto: expected \"\", got \"x\""},
      {"PACKAGE_SAME_PHP_NAMESPACE", File("") + SecondFile("php_namespace: 'x'"),
       "a/v1/c.proto: expected \"\", got \"x\""},
      {"PACKAGE_SAME_RUBY_PACKAGE", File("") + SecondFile("ruby_package: 'x'"),
       "a/v1/c.proto: expected \"\", got \"x\""},
      {"PACKAGE_SAME_SWIFT_PREFIX", File("") + SecondFile("swift_prefix: 'x'"),
       "a/v1/c.proto: expected \"\", got \"x\""},
      {"MESSAGE_PASCAL_CASE", File("message_type { name: 'Outer' nested_type { name: 'in_ner' } }"),
       ".a.v1.Outer.in_ner"},
      {"ONEOF_LOWER_SNAKE_CASE", File("message_type { name: 'M' oneof_decl { name: 'Prompt' } }"), ".a.v1.M"},
      {"FIELD_LOWER_SNAKE_CASE", File("message_type { name: 'M' field { name: 'tokenIds' } }"), ".a.v1.M.tokenIds"},
      {"FIELD_NOT_REQUIRED", File("message_type { name: 'M' field { name: 'f' label: LABEL_REQUIRED } }"), ".a.v1.M.f"},
      {"COMMENT_MESSAGE", File("message_type { name: 'M' }"), ".a.v1.M"},
      {"ENUM_PASCAL_CASE", File("enum_type { name: 'finish_reason' }"), ".a.v1.finish_reason"},
      {"ENUM_NO_ALLOW_ALIAS", File("enum_type { name: 'E' options { allow_alias: true } }"), ".a.v1.E"},
      {"ENUM_FIRST_VALUE_ZERO", EnumValue("MODE_A", 1), ".a.v1.Mode"},
      {"ENUM_ZERO_VALUE_SUFFIX", EnumValue("MODE_NONE", 0), ".a.v1.Mode"},
      {"ENUM_VALUE_UPPER_SNAKE_CASE", EnumValue("MODE_Auto", 1), ".a.v1.Mode"},
      {"ENUM_VALUE_PREFIX", EnumValue("AUTO", 1), ".a.v1.Mode"},
      {"COMMENT_ENUM", EnumValue("MODE_UNSPECIFIED", 0), ".a.v1.Mode"},
      {"SERVICE_PASCAL_CASE", File("service { name: 'x_service' }"), "x_service"},
      {"SERVICE_SUFFIX", File("service { name: 'Greeter' }"), "Greeter"},
      {"COMMENT_SERVICE", Service(""), "XService"},
      {"RPC_PASCAL_CASE", Service("method { name: 'do' }"), ".a.v1.XService.do"},
      {"RPC_REQUEST_RESPONSE_UNIQUE", Service(Method("DoRequest", "DoRequest")),
       ".a.v1.XService.Do shares .a.v1.DoRequest"},
      {"RPC_REQUEST_STANDARD_NAME", Service(Method("Ask", "DoResponse")), ".a.v1.XService.Do"},
      {"RPC_RESPONSE_STANDARD_NAME", Service(Method("DoRequest", "Answer")), ".a.v1.XService.Do"},
      {"COMMENT_RPC", Service(Method("DoRequest", "DoResponse")), ".a.v1.XService.Do"}};
  return *kCases;
}

TEST(EveryRule, FindsWhatBreaksIt) {
  for (const BadCase& bad : BadCases()) {
    FileDescriptorSet set;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(bad.set, &set)) << bad.rule;
    EXPECT_THAT(Rule(bad.rule).check(set), ElementsAre(bad.rule + ": " + bad.finding)) << bad.rule;
  }
}

TEST(EveryRule, HasACaseThatBreaksIt) {
  for (const ProtoRule& rule : ProtoRules()) {
    EXPECT_THAT(BadCases(), ::testing::Contains(::testing::Field(&BadCase::rule, rule.name)));
  }
}

}  // namespace
}  // namespace foretoken::testing
