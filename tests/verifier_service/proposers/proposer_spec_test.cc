// SPDX-License-Identifier: Apache-2.0
// The flag --proposer. If this test fails, a valid spec is refused, or a wrong spec is accepted or reported without its
// mistake.
#include "verifier_service/proposers/proposer_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(ProposerSpec, ReadsNamesAndAddresses) {
  const absl::StatusOr<ProposerSpec> spec =
      ParseProposerSpec("draft=dns:///drafts:50052,static:127.0.0.1:1,[::1]:65535,dns:///more:7");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->method, "draft");
  EXPECT_FALSE(spec->is_embedded);
  EXPECT_THAT(spec->dns_names, ElementsAre("drafts:50052", "more:7"));
  EXPECT_THAT(spec->static_addresses, ElementsAre("127.0.0.1:1", "[::1]:65535"));
}

TEST(ProposerSpec, ReadsEmbedded) {
  const absl::StatusOr<ProposerSpec> spec = ParseProposerSpec("ngram,embedded");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->method, "ngram");
  EXPECT_TRUE(spec->is_embedded);
  EXPECT_THAT(spec->static_addresses, IsEmpty());
  EXPECT_THAT(spec->options, IsEmpty());
}

TEST(ProposerSpec, ReadsTheOptionsOfEmbedded) {
  const absl::StatusOr<ProposerSpec> spec = ParseProposerSpec("draft,embedded,model=/models/a=b,threads=1,isa=");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->method, "draft");
  EXPECT_TRUE(spec->is_embedded);
  EXPECT_THAT(spec->options, ElementsAre(Pair("model", "/models/a=b"), Pair("threads", "1"), Pair("isa", "")));
  EXPECT_THAT(spec->static_addresses, IsEmpty());
}

// An option ends at a comma, so a list stands with plus signs.
TEST(ProposerSpec, AnOptionMayBeAList) {
  const absl::StatusOr<ProposerSpec> spec = ParseProposerSpec("eagle3,embedded,feature_layers=2+4+5,threads=1");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->options, ElementsAre(Pair("feature_layers", "2+4+5"), Pair("threads", "1")));
  EXPECT_THAT(std::string(ParseProposerSpec("eagle3,embedded,feature_layers=2,4,5").status().message()),
              HasSubstr("got \"4\"; a value that is a list stands with +"));
}

struct BadSpec {
  const char* text;
  const char* want;
};

TEST(ProposerSpec, NamesTheMistake) {
  const BadSpec kBad[] = {
      {"", "expected METHOD=TARGET"},
      {"ngram", "expected METHOD=TARGET"},
      {",embedded", "expected a method name"},
      {"ngram,embeded", "METHOD,embedded[,KEY=VALUE...]"},
      {"ngram,embedded,", "expected KEY=VALUE after embedded, got \"\""},
      {"ngram,embedded,threads", "expected KEY=VALUE after embedded, got \"threads\""},
      {"ngram,embedded,a=1,=2", "got \"=2\""},
      {"ngram,embedded=1", "expected a comma after embedded, got \"=1\""},
      {"=static:a:1", "expected a method name"},
      {"n gram=static:a:1", "got \"n gram\""},
      {"ngram=", "expected dns:///name:port or static:host:port, got \"\""},
      {"ngram=a:1", "expected dns:///name:port or static:host:port, got \"a:1\""},
      {"ngram=static:a", "expected host:port with a port in [1, 65535], got \"a\""},
      {"ngram=static:a:0", "got \"a:0\""},
      {"ngram=static:a:65536", "got \"a:65536\""},
      {"ngram=static:a:1x", "got \"a:1x\""},
      {"ngram=static::1", "got \":1\""},
      {"ngram=static:::1:5", "IPv6 address in brackets"},
      {"ngram=static:a:1,", "got \"\""},
      {"ngram=dns:///a", "got \"a\""},
  };
  for (const BadSpec& bad : kBad) {
    const absl::Status status = ParseProposerSpec(bad.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.want)) << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("proposer \"") + bad.text + "\"")) << bad.text;
  }
}

}  // namespace
}  // namespace foretoken::verifier
