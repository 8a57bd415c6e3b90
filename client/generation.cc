// SPDX-License-Identifier: Apache-2.0
#include "client/generation.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8_bytes.h"
#include "common/speculation/token_tree.h"

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateResponse;

// A node has a bit for each proposer, so at most 32 trees are merged. The result is no deeper than the deepest of them.
constexpr int kMaxReportedNodes = 32 * speculation::kMaxTreeNodes;
constexpr int kMaxReportedDepth = speculation::kMaxTreeNodes;

// True if the byte at `end` of the sample's text continues a character. `text` is the part that begins at `begin`.
bool IsInsideCharacter(absl::string_view text, size_t begin, size_t end) {
  return end >= begin && end - begin < text.size() && base::ContinuesCharacter(text[end - begin]);
}

absl::Status CheckLength(absl::string_view field, int got, int num_tokens) {
  if (got == 0 || got == num_tokens) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the server sent ", got, " entries of ", field, " for ", num_tokens, " token_ids"));
}

absl::Status Check(const GenerateResponse& response, const Sample& sample) {
  if (sample.completion.has_value()) {
    return absl::InternalError(
        absl::StrCat("the server sent more of sample ", response.sample_index(), " after its completion"));
  }
  FT_RETURN_IF_ERROR(CheckLength("speculated", response.speculated_size(), response.token_ids_size()));
  FT_RETURN_IF_ERROR(CheckLength("text_ends", response.text_ends_size(), response.token_ids_size()));
  FT_RETURN_IF_ERROR(CheckLength("logprobs", response.logprobs_size(), response.token_ids_size()));
  uint32_t last_end = sample.text_ends.empty() ? 0 : sample.text_ends.back();
  for (uint32_t end : response.text_ends()) {
    if (end < last_end) {
      return absl::InternalError(absl::StrCat("the server sent text_ends that fall from ", last_end, " to ", end));
    }
    if (IsInsideCharacter(response.text(), sample.text.size(), end)) {
      return absl::InternalError(absl::StrCat("the server sent text_ends with ", end, ", which is inside a character"));
    }
    last_end = end;
  }
  for (const foretoken::v1::StepReport& step : response.steps()) FT_RETURN_IF_ERROR(CheckStep(step));
  return absl::OkStatus();
}

// Appends one piece of the prompt.
void Append(const foretoken::v1::PromptOutput& piece, Generation& generation) {
  if (!generation.prompt.has_value()) generation.prompt.emplace();
  generation.prompt->mutable_token_ids()->MergeFrom(piece.token_ids());
  generation.prompt->mutable_logprobs()->MergeFrom(piece.logprobs());
  generation.prompt->mutable_text()->append(piece.text());
}

}  // namespace

absl::Status CheckStep(const foretoken::v1::StepReport& step) {
  const foretoken::v1::StepTree& tree = step.tree();
  const int num_nodes = tree.token_ids_size();
  if (num_nodes > kMaxReportedNodes) {
    return absl::InternalError(
        absl::StrCat("the server sent a tree of ", num_nodes, " tokens; expected at most ", kMaxReportedNodes));
  }
  for (const int size : {tree.parents_size(), tree.chances_size(), tree.path_chances_size(), tree.proposers_size(),
                         tree.planned_size()}) {
    if (size == num_nodes) continue;
    return absl::InternalError(
        absl::StrCat("the server sent a tree of ", num_nodes, " tokens with an array of ", size));
  }
  std::vector<int> depths(num_nodes);
  for (int node = 0; node < num_nodes; ++node) {
    const int parent = tree.parents(node);
    if (parent < -1 || parent >= node) {
      return absl::InternalError(absl::StrCat("the server sent a tree whose node ", node, " has the parent ", parent,
                                              "; expected -1 to ", node - 1));
    }
    depths[node] = parent < 0 ? 1 : depths[parent] + 1;
    if (depths[node] > kMaxReportedDepth) {
      return absl::InternalError(absl::StrCat("the server sent a tree whose node ", node, " has the depth ",
                                              depths[node], "; expected at most ", kMaxReportedDepth));
    }
  }
  for (const uint32_t node : step.accepted()) {
    if (node < static_cast<uint32_t>(num_nodes)) continue;
    return absl::InternalError(absl::StrCat("the server accepted node ", node, " of a tree of ", num_nodes));
  }
  return absl::OkStatus();
}

absl::Status Append(const GenerateResponse& response, Generation& generation) {
  if (response.sample_index() >= kMaxSamples) {
    return absl::InternalError(
        absl::StrCat("the server sent sample_index ", response.sample_index(), "; expected less than ", kMaxSamples));
  }
  if (!response.request_id().empty()) generation.request_id = response.request_id();
  if (response.has_prompt()) Append(response.prompt(), generation);
  const bool has_output = !response.text().empty() || response.token_ids_size() > 0 || response.steps_size() > 0 ||
                          response.has_completion();
  if (!has_output) return absl::OkStatus();

  if (response.sample_index() >= generation.samples.size()) generation.samples.resize(response.sample_index() + 1);
  Sample& sample = generation.samples[response.sample_index()];
  FT_RETURN_IF_ERROR(Check(response, sample));
  sample.text += response.text();
  sample.token_ids.insert(sample.token_ids.end(), response.token_ids().begin(), response.token_ids().end());
  sample.speculated.insert(sample.speculated.end(), response.speculated().begin(), response.speculated().end());
  sample.text_ends.insert(sample.text_ends.end(), response.text_ends().begin(), response.text_ends().end());
  sample.logprobs.insert(sample.logprobs.end(), response.logprobs().begin(), response.logprobs().end());
  sample.steps.insert(sample.steps.end(), response.steps().begin(), response.steps().end());
  if (response.has_completion()) sample.completion = response.completion();
  return absl::OkStatus();
}

absl::Status CheckComplete(const Generation& generation, int num_samples) {
  if (static_cast<int>(generation.samples.size()) > num_samples) {
    return absl::InternalError(absl::StrCat("the server sent sample_index ", generation.samples.size() - 1,
                                            "; the request asked for samples 0 to ", num_samples - 1));
  }
  for (int index = 0; index < num_samples; ++index) {
    if (index >= static_cast<int>(generation.samples.size()) || !generation.samples[index].completion.has_value()) {
      return absl::InternalError(absl::StrCat("the server ended the stream without completing sample ", index));
    }
  }
  return absl::OkStatus();
}

}  // namespace foretoken::client
