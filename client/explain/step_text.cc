// SPDX-License-Identifier: Apache-2.0
#include "client/explain/step_text.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/explain/step_outcome.h"
#include "client/quoted.h"
#include "client/terminal.h"

namespace foretoken::client {
namespace {

using foretoken::v1::StepBatch;
using foretoken::v1::StepProposer;
using foretoken::v1::StepReport;
using foretoken::v1::StepTimes;

constexpr absl::string_view kSeparator = " · ";
constexpr size_t kSaidColumns = 46;   // of the accepted tokens
constexpr size_t kBonusColumns = 24;  // of the bonus token

std::string Counted(uint64_t count, absl::string_view singular) {
  return absl::StrCat(count, " ", singular, count == 1 ? "" : "s");
}

std::string Header(const StepReport& step) {
  const StepBatch& batch = step.batch();
  const StepTimes& times = step.times();
  std::vector<std::string> parts = {
      absl::StrCat("step ", step.step(), " at ", step.position()),
      absl::StrCat(Counted(batch.num_rows(), "row"), " of ", Counted(batch.num_sequences(), "sequence")),
      absl::StrFormat("%.2f ms, predicted %.2f", times.forward_ms() + times.draw_ms(), times.predicted_ms()),
      absl::StrFormat("host %.2f", times.host_ms())};
  if (times.wait_ms() > 0) parts.push_back(absl::StrFormat("waited %.2f", times.wait_ms()));
  if (batch.is_curious()) parts.push_back("curious");
  return absl::StrJoin(parts, kSeparator);
}

std::string TreesLine(const StepReport& step) {
  std::vector<std::string> parts;
  for (const StepProposer& proposer : step.proposers()) {
    std::string part = absl::StrCat(EscapeControls(proposer.proposer()), " ", Counted(proposer.num_nodes(), "node"));
    if (proposer.position() < step.position()) {
      absl::StrAppend(&part, ", ", Counted(step.position() - proposer.position(), "token"), " late");
    }
    if (proposer.num_predicted_features() > 0) {
      absl::StrAppend(&part, ", ", Counted(proposer.num_predicted_features(), "feature"), " predicted");
    }
    parts.push_back(std::move(part));
  }
  if (parts.empty()) parts.push_back("no guesses");
  return absl::StrJoin(parts, kSeparator);
}

// The expected rates that the planner compared.
std::string RateLine(const StepReport& step) {
  constexpr float kMsPerSecond = 1000;
  const StepBatch& batch = step.batch();
  if (step.times().predicted_ms() <= 0 || batch.predicted_ms_without_trees() <= 0) return "";
  const auto rate = [&](float tokens, float step_ms) { return kMsPerSecond * tokens / (step_ms + batch.between_ms()); };
  return absl::StrFormat("%d of %d nodes planned: %.0f tokens/s expected, %.0f without trees",
                         std::count(step.tree().planned().begin(), step.tree().planned().end(), true),
                         step.tree().token_ids_size(), rate(batch.expected_tokens(), step.times().predicted_ms()),
                         rate(batch.expected_tokens_without_trees(), batch.predicted_ms_without_trees()));
}

std::string EmittedLine(const StepReport& step, const TokenTexts& texts) {
  const std::optional<uint32_t> bonus = BonusToken(step);
  const std::vector<uint32_t> ids(step.token_ids().begin(), step.token_ids().end());
  const std::string said = texts.Of(std::span(ids).first(ids.size() - (bonus.has_value() ? 1 : 0)));
  std::string line = absl::StrFormat("emitted %d, expected %.2f:", step.token_ids_size(), step.expected_tokens());
  if (!said.empty()) absl::StrAppend(&line, " ", Quoted(said, kSaidColumns));
  if (bonus.has_value()) absl::StrAppend(&line, said.empty() ? " " : " + ", Quoted(texts.Of(*bonus), kBonusColumns));
  return line;
}

}  // namespace

std::string StepText(const StepReport& step, const TokenTexts& texts, const StepTextOptions& options) {
  std::string text;
  if (step.num_lost() > 0) absl::StrAppend(&text, "(", Counted(step.num_lost(), "step"), " lost)\n");
  absl::StrAppend(&text, Paint(Header(step), options.color ? Ink::kBold : Ink::kPlain), "\n");
  if (step.token_ids().empty()) {
    return absl::StrCat(text, "  ", Counted(step.num_context_rows(), "token"), " of the prompt\n");
  }
  absl::StrAppend(&text, "  ", TreesLine(step), "\n");
  if (step.tree().token_ids_size() > 0) absl::StrAppend(&text, "  ", RateLine(step), "\n");
  return absl::StrCat(text, TreeText(step, texts, options), "  ", EmittedLine(step, texts), "\n");
}

}  // namespace foretoken::client
