// SPDX-License-Identifier: Apache-2.0
// Bounds on the bytes of messages. If this test fails, one small request can take gigabytes of memory, or a good
// request is refused.
#include "common/rpc/message_bounds.h"

#include <string>

#include "foretoken/v1/generation.pb.h"
#include "foretoken/v1/proposal.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

using ::testing::HasSubstr;

const MessageBounds& StopBounds() {
  static const auto* const bounds = new MessageBounds(
      *v1::StoppingOptions::descriptor(),
      {{.path = "stop_strings", .max_count = 3, .max_bytes = 4}, {.path = "stop_token_ids", .max_count = 5}});
  return *bounds;
}

TEST(MessageBounds, AcceptsMessagesWithinTheBounds) {
  v1::StoppingOptions message;
  for (int i = 0; i < 3; ++i) message.add_stop_strings("abcd");
  for (const uint32_t id : {1u, 300u, 70'000u, 1u << 31, ~0u}) message.add_stop_token_ids(id);
  message.set_max_tokens(~0u);
  EXPECT_EQ(StopBounds().Check(message.SerializeAsString()), absl::OkStatus());
  EXPECT_EQ(StopBounds().Check(""), absl::OkStatus());
}

TEST(MessageBounds, NamesTheFieldTheBoundAndTheCount) {
  v1::StoppingOptions message;
  for (int i = 0; i < 4; ++i) message.add_stop_strings("");
  EXPECT_EQ(StopBounds().Check(message.SerializeAsString()).message(), "stop_strings: expected at most 3, got 4");
  message.Clear();
  message.mutable_stop_token_ids()->Resize(6, 70'000);
  EXPECT_EQ(StopBounds().Check(message.SerializeAsString()).message(), "stop_token_ids: expected at most 5, got 6");
  message.Clear();
  message.add_stop_strings("ab");
  message.add_stop_strings("abcde");
  EXPECT_EQ(StopBounds().Check(message.SerializeAsString()).message(),
            "stop_strings[1]: expected at most 4 bytes, got 5");
}

TEST(MessageBounds, CountsPackedAndUnpackedElementsAlike) {
  std::string bytes;
  for (int i = 0; i < 3; ++i) bytes += std::string("\x20\x01", 2);  // stop_token_ids, one by one
  bytes += std::string("\x22\x02\x01\x01", 4);                      // and two packed
  EXPECT_EQ(StopBounds().Check(bytes), absl::OkStatus());
  EXPECT_EQ(StopBounds().Check(bytes + std::string("\x20\x01", 2)).message(),
            "stop_token_ids: expected at most 5, got 6");
}

MessageBounds GenerateBounds() {
  constexpr size_t kMuch = 1 << 20;
  return {*v1::GenerateRequest::descriptor(),
          {{.path = "request_id", .max_bytes = kMuch},
           {.path = "model", .max_bytes = kMuch},
           {.path = "tenant", .max_bytes = kMuch},
           {.path = "text", .max_bytes = kMuch},
           {.path = "chat.messages", .max_count = kMuch},
           {.path = "chat.messages.role", .max_bytes = kMuch},
           {.path = "chat.messages.content", .max_bytes = kMuch},
           {.path = "chat.messages.fields_json", .max_bytes = kMuch},
           {.path = "chat.tools_json", .max_bytes = kMuch},
           {.path = "chat.template_variables_json", .max_bytes = kMuch},
           {.path = "response_format.json_schema", .max_bytes = kMuch},
           {.path = "response_format.regex", .max_bytes = kMuch},
           {.path = "response_format.ebnf", .max_bytes = kMuch},
           {.path = "response_format.structural_tag", .max_bytes = kMuch},
           {.path = "response_format.choices.texts", .max_count = kMuch, .max_bytes = kMuch},
           {.path = "tokens.ids", .max_count = kMuch},
           {.path = "sampling.logit_bias", .max_count = 2},
           {.path = "sampling.allowed_token_ids", .max_count = kMuch},
           {.path = "sampling.banned_token_ids", .max_count = kMuch},
           {.path = "stopping.stop_strings", .max_count = 3, .max_bytes = 4},
           {.path = "stopping.stop_token_ids", .max_count = kMuch},
           {.path = "speculation.proposers", .max_count = kMuch, .max_bytes = kMuch},
           {.path = "speculation.prediction_text", .max_bytes = kMuch},
           {.path = "speculation.prediction_tokens.ids", .max_count = kMuch},
           {.path = "expected_numerics_fingerprint", .max_bytes = kMuch}}};
}

// The parser merges them, so that each of them alone may be small.
TEST(MessageBounds, CountsOverAMessageThatStandsThereSeveralTimes) {
  v1::GenerateRequest request;
  request.mutable_stopping()->add_stop_strings("a");
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += request.SerializeAsString();
  EXPECT_EQ(GenerateBounds().Check(bytes).message(), "stopping.stop_strings: expected at most 3, got 4");
}

TEST(MessageBounds, CountsTheEntriesOfAMap) {
  v1::GenerateRequest request;
  for (uint32_t id = 0; id < 3; ++id) (*request.mutable_sampling()->mutable_logit_bias())[id] = 1;
  EXPECT_EQ(GenerateBounds().Check(request.SerializeAsString()).message(),
            "sampling.logit_bias: expected at most 2, got 3");
}

TEST(MessageBounds, CountsInEachElementOfARepeatedMessageAnew) {
  const MessageBounds bounds(*v1::StepReport::descriptor(), {{.path = "proposers", .max_count = 8},
                                                             {.path = "proposers.proposer", .max_bytes = 4},
                                                             {.path = "tree.token_ids", .max_count = 2},
                                                             {.path = "tree.parents", .max_count = 2},
                                                             {.path = "tree.chances", .max_count = 2},
                                                             {.path = "tree.path_chances", .max_count = 2},
                                                             {.path = "tree.proposers", .max_count = 2},
                                                             {.path = "tree.planned", .max_count = 2},
                                                             {.path = "accepted", .max_count = 2},
                                                             {.path = "token_ids", .max_count = 2}});
  v1::StepReport report;
  report.add_proposers()->set_proposer("ab");
  report.add_proposers()->set_proposer("abcde");
  EXPECT_EQ(bounds.Check(report.SerializeAsString()).message(),
            "proposers[1].proposer: expected at most 4 bytes, got 5");
  report.clear_proposers();
  for (int i = 0; i < 3; ++i) report.mutable_tree()->add_chances(.5f);  // four bytes each
  EXPECT_EQ(bounds.Check(report.SerializeAsString()).message(), "tree.chances: expected at most 2, got 3");
  const MessageBounds batches(*v1::SparseDistribution::descriptor(),
                              {{.path = "token_ids", .max_count = 2}, {.path = "probabilities", .max_count = 2}});
  v1::SparseDistribution draft;
  for (int i = 0; i < 2; ++i) draft.add_probabilities(.5f);
  EXPECT_EQ(batches.Check(draft.SerializeAsString()), absl::OkStatus());
}

TEST(MessageBounds, ListsWithinListsHaveABoundTogether) {
  constexpr size_t kMuch = size_t{1} << 30;
  const MessageBounds bounds(*v1::ProposeResponse::descriptor(),
                             {{.path = "trees", .max_count = kMuch},
                              {.path = "trees.token_ids", .max_count = kMuch},
                              {.path = "trees.parents", .max_count = kMuch},
                              {.path = "trees.chances", .max_count = kMuch},
                              {.path = "trees.draft_probs", .max_count = kMuch},
                              {.path = "trees.draft_probs.token_ids", .max_count = kMuch},
                              {.path = "trees.draft_probs.probabilities", .max_count = kMuch},
                              {.path = "trees.distribution_indices", .max_count = kMuch},
                              {.path = "refused_session_ids", .max_count = kMuch},
                              {.path = "unknown_session_ids", .max_count = kMuch},
                              {.path = "refusals", .max_count = kMuch},
                              {.path = "refusals.detail", .max_bytes = kMuch}});
  v1::ProposeResponse message;
  for (size_t i = 0; i < MessageBounds::kMaxElements / 4; ++i) {
    v1::TokenTree& tree = *message.add_trees();
    for (int j = 0; j < 3; ++j) tree.add_draft_probs();
  }
  EXPECT_EQ(bounds.Check(message.SerializeAsString()), absl::OkStatus());
  message.add_trees();
  EXPECT_EQ(bounds.Check(message.SerializeAsString()).message(),
            "expected at most 262144 elements of all lists, got 262145");
}

TEST(MessageBounds, UnknownFieldsMayTakeLittle) {
  const std::string unknown("\xf8\x07\x01", 3);  // field 127
  std::string bytes;
  while (bytes.size() + unknown.size() <= MessageBounds::kMaxUnknownBytes) bytes += unknown;
  EXPECT_EQ(StopBounds().Check(bytes), absl::OkStatus());
  EXPECT_THAT(StopBounds().Check(bytes + unknown).message(), HasSubstr("of unknown fields, got 65538"));
}

// The parser keeps a known number with another wire type like an unknown field.
TEST(MessageBounds, AFieldOfAnotherWireTypeIsUnknown) {
  const std::pair<const char*, std::string> fields[] = {{"a number as text", std::string("\x0a\x00", 2)},
                                                        {"a number as a group", std::string("\x0b\x0c", 2)},
                                                        {"a number as fixed32", std::string("\x0d\0\0\0\0", 5)},
                                                        {"a text as a number", std::string("\x18\x00", 2)},
                                                        {"a list as fixed32", std::string("\x25\0\0\0\0", 5)}};
  for (const auto& [name, field] : fields) {
    std::string bytes;
    while (bytes.size() <= MessageBounds::kMaxUnknownBytes) bytes += field;
    v1::StoppingOptions parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes)) << name;
    ASSERT_EQ(parsed.SerializeAsString().size(), bytes.size()) << name << " is not kept";
    EXPECT_THAT(StopBounds().Check(bytes).message(), HasSubstr("of unknown fields")) << name;
  }
}

// Otherwise the parser would make a large message of the sound part before it finds the end.
TEST(MessageBounds, RefusesBytesThatEndInNoMessage) {
  for (const std::string& end : {std::string("\x07", 1), std::string("\x1a\x05", 2), std::string("\x00", 1)}) {
    EXPECT_THAT(StopBounds().Check(std::string("\x1a\x00", 2) + end).message(), HasSubstr("do not parse as one"));
  }
}

TEST(MessageBoundsDeathTest, ATableNamesEveryFieldThatCanGrow) {
  EXPECT_DEATH(MessageBounds(*v1::StoppingOptions::descriptor(), {{.path = "stop_strings", .max_count = 1}}),
               "stop_token_ids: has no bound");
  EXPECT_DEATH(MessageBounds(*v1::GetModelInfoRequest::descriptor(), {{.path = "model"}, {.path = "request_idea"}}),
               "request_idea: has a bound, but the message has no such field");
}

}  // namespace
}  // namespace foretoken::rpc
