// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a verifier ignores or misreads the options of an embedded proposer, or a proposer takes flags
// that change nothing.
#include "proposer_service/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foretoken::proposer {
namespace {

using ::testing::HasSubstr;
using Options = std::vector<std::pair<std::string, std::string>>;

Config Read(absl::string_view method, const Options& options) {
  const absl::StatusOr<Config> config = ConfigFromOptions(method, options);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(Config());
}

TEST(ProposerOptions, AnOptionThatIsNotNamedHasItsDefault) {
  const Config config = Read("suffix", {});
  EXPECT_EQ(config.method, "suffix");
  EXPECT_EQ(config.suffix.max_depth, SuffixOptions().max_depth);
  EXPECT_EQ(config.limits.max_sessions, SessionLimits().max_sessions);
}

TEST(ProposerOptions, EveryTypeIsRead) {
  const Config suffix = Read(
      "suffix",
      {{"snapshot", "/tmp/a=b"}, {"snapshot_interval", "1m30s"}, {"min_path_chance", "0.5"}, {"max_sessions", "3"}});
  EXPECT_EQ(suffix.suffix.snapshot_path, "/tmp/a=b");
  EXPECT_EQ(suffix.suffix.snapshot_interval, absl::Seconds(90));
  EXPECT_EQ(suffix.suffix.min_path_chance, .5f);
  EXPECT_EQ(suffix.limits.max_sessions, 3);
  const Config draft =
      Read("draft", {{"model", "/m"}, {"threads", "2"}, {"kv_cache_mb", "64"}, {"expert_memory_mb", "9"}});
  EXPECT_EQ(draft.draft.model_directory, "/m");
  EXPECT_EQ(draft.draft.num_threads, 2);
  EXPECT_EQ(draft.draft.kv_cache_mb, 64);
  EXPECT_EQ(draft.draft.expert_memory_mb, 9);
  EXPECT_TRUE(Read("medusa", {{"model", "/m"}, {"target", "/t"}}).draft.try_on_target);
  EXPECT_FALSE(Read("medusa", {{"model", "/m"}, {"target", "/t"}, {"try_on_target", "false"}}).draft.try_on_target);
}

TEST(ProposerOptions, ANameMayLeaveOutItsMethodsPrefix) {
  EXPECT_EQ(Read("draft", {{"children", "8"}}).draft.forest.num_children, 8);
  EXPECT_EQ(Read("draft", {{"draft_children", "8"}}).draft.forest.num_children, 8);
  EXPECT_EQ(Read("ngram", {{"max_length", "5"}}).ngram.max_length, 5);
  // Two options have this name without their methods. The name stands for the option of the given method.
  EXPECT_EQ(Read("draft", {{"min_path_chance", "0.25"}}).draft.forest.min_path_chance, .25f);
}

struct BadOptions {
  const char* method;
  Options options;
  const char* want;
};

TEST(ProposerOptions, NamesTheWrongOption) {
  const BadOptions kBad[] = {
      {"drft",
       {{"model", "/m"}},
       "method: expected ngram, suffix, draft, dflash, eagle, eagle3, mlp_speculator or medusa, got 'drft'"},
      {"draft", {{"modle", "/m"}}, "option 'modle': expected, for draft, one of max_streams"},
      {"draft",
       {{"modle", "/m"}},
       "model, device, isa, weight_quantization, head_quantization, weight_group_size, activation_quantization, "
       "kv_cache_dtype, threads, tensor_parallel, kv_cache_mb, expert_memory_mb, children"},
      {"ngram", {{"threads", "2"}}, "option 'threads': expected, for ngram, one of "},
      {"ngram", {{"suffix_max_depth", "2"}}, "option 'suffix_max_depth'"},
      {"draft", {{"", "2"}}, "option ''"},
      {"draft", {{"method", "ngram"}}, "option 'method'"},
      {"draft", {{"threads", "two"}}, "threads: expected a whole number, got 'two'"},
      {"draft", {{"threads", "99999999999"}}, "threads: expected a whole number"},
      {"draft", {{"kv_cache_mb", "1.5"}}, "kv_cache_mb: expected a whole number, got '1.5'"},
      {"suffix", {{"snapshot_interval", "5"}}, "snapshot_interval: expected a duration as in 30s or 5m, got '5'"},
      {"eagle3", {{"try_on_target", "perhaps"}}, "try_on_target: expected true or false, got 'perhaps'"},
      {"suffix", {{"min_path_chance", ""}}, "min_path_chance: expected a number, got ''"},
      {"draft", {{"children", "4"}, {"draft_children", "5"}}, "draft_children: expected once, got it again, as '5'"},
  };
  for (const BadOptions& bad : kBad) {
    const absl::Status status = ConfigFromOptions(bad.method, bad.options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.want;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.want));
  }
}

TEST(ProposerOptions, NamesAFlagOfAnotherMethod) {
  EXPECT_EQ(CheckFlags("ngram", {"max_streams", "suffix_snapshot"}),
            absl::InvalidArgumentError(
                "--suffix_snapshot: expected, for --method=ngram, one of --max_streams, --max_sessions, "
                "--max_total_tokens, --max_stream_share, --max_context_tokens, --max_tree_nodes, --ngram_min_length, "
                "--ngram_max_length"));
  EXPECT_THAT(CheckFlags("draft", {"target"}).ToString(), HasSubstr("--target: expected, for --method=draft, one of"));
  EXPECT_THAT(CheckFlags("suffix", {"threads"}).ToString(), HasSubstr("--threads: expected, for --method=suffix"));
  EXPECT_THAT(CheckFlags("drft", {}).ToString(), HasSubstr("method: expected ngram, "));
  EXPECT_TRUE(CheckFlags("suffix", {"suffix_snapshot", "max_tree_nodes"}).ok());
  EXPECT_TRUE(CheckFlags("medusa", {"model", "target", "threads", "draft_children", "max_sessions"}).ok());
}

}  // namespace
}  // namespace foretoken::proposer
