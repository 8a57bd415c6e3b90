// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/commit.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "common/model/forward_batch.h"
#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

bool Contains(std::span<const int32_t> ascending, int32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

// Appends a token to the sample. A token that ends the sample has no text.
void AppendToken(Sequence& sequence, int32_t token_id, bool is_speculated) {
  const GenerationRequest& request = sequence.request();
  sequence.token_ids.push_back(token_id);
  if (sequence.follower.has_value()) {
    sequence.follower->Append(std::span(sequence.token_ids).subspan(request.prompt.size()));
  }
  if (sequence.grammar.has_value()) sequence.grammar->Append(token_id);
  if (sequence.active->counts_tokens) sequence.counts.AddGenerated(token_id);
  SampleOutput& output = sequence.output;
  output.token_ids.push_back(token_id);
  output.speculated.push_back(is_speculated);

  std::optional<FinishReason> finish;
  if (Contains(sequence.active->ending_ids, token_id)) {
    finish = FinishReason::kStop;
    if (Contains(request.stop.stop_token_ids, token_id)) sequence.usage.matched_stop_token_id = token_id;
  } else {
    const bool counts_for_stop = sequence.num_generated() >= request.stop.min_tokens;
    TextStream::Appended appended = sequence.text.Append(token_id, counts_for_stop);
    output.text += appended.text;
    if (appended.matched_stop_string.has_value()) {
      finish = FinishReason::kStop;
      sequence.usage.matched_stop_string = request.stop.stop_strings[*appended.matched_stop_string];
    }
  }
  if (!finish.has_value() && sequence.num_generated() >= request.stop.max_tokens) finish = FinishReason::kLength;
  if (finish.has_value()) FinishSample(sequence, *finish);
  output.text_ends.push_back(sequence.num_text_bytes + static_cast<uint32_t>(output.text.size()));
}

void CountProposers(uint32_t bits, uint64_t ProposerCount::*field, Sequence& sequence) {
  for (; bits != 0; bits &= bits - 1) ++(sequence.proposer_counts[std::countr_zero(bits)].*field);
}

// Counts one more token of this step. The step has accepted `length` guesses so far.
void CountAcceptedLength(size_t length, SpeculationCounts& counts) {
  if (length > 0) --counts.accepted_lengths[length - 1];
  counts.AddAcceptedLength(length, /*num_steps=*/1);
}

}  // namespace

int32_t CommitPath(Sequence& sequence, const PlannedTree& tree, kernels::AcceptedPath& path,
                   std::vector<kernels::KvMove>* moves) {
  const int32_t old_size = sequence.size();
  for (const speculation::TreeNode& node : tree.rows.nodes) {
    CountProposers(node.proposers, &ProposerCount::num_proposed, sequence);
  }
  if (tree.guess != nullptr) sequence.speculation_counts.num_proposed_nodes += tree.guess->nodes.size();
  sequence.speculation_counts.num_verified_nodes += tree.rows.nodes.size();
  int32_t num_committed = 0;
  sequence.output.token_ids.reserve(path.token_ids.size());
  sequence.output.speculated.reserve(path.token_ids.size());
  sequence.output.text_ends.reserve(path.token_ids.size());
  for (size_t i = 0; i < path.token_ids.size() && !sequence.is_finished; ++i) {
    if (i > 0) {  // an accepted node's row drew this token; the node's own token is the one before it
      const int32_t node = path.node_idx[i] - 1;
      moves->push_back({.from_slot = tree.slots.slots[node],
                        .to_slot = model::SlotOf(sequence.blocks, old_size + static_cast<int32_t>(i) - 1)});
      CountProposers(tree.rows.nodes[node].proposers, &ProposerCount::num_accepted, sequence);
    }
    CountAcceptedLength(i, sequence.speculation_counts);
    AppendToken(sequence, path.token_ids[i], /*is_speculated=*/path.node_idx[i] != 0);
    if (!path.logprobs.empty()) sequence.output.logprobs.push_back(std::move(path.logprobs[i]));
    ++num_committed;
  }
  sequence.num_computed = sequence.size() - 1;
  return num_committed;
}

void CommitChunk(Sequence& sequence, int32_t num_chain) { sequence.num_computed += num_chain; }

void ReportPrompt(Sequence& sequence) {
  const OutputRequest& wanted = sequence.request().output;
  if (sequence.prompt_reported || (!wanted.echo && !wanted.num_prompt_logprobs.has_value())) return;
  const std::vector<int32_t>& prompt = sequence.request().prompt;
  if (wanted.num_prompt_logprobs.has_value() && sequence.prompt_logprobs.size() + 1 < prompt.size()) return;
  sequence.output.prompt =
      PromptEcho{.token_ids = {sequence.active->request, &prompt}, .logprobs = std::move(sequence.prompt_logprobs)};
  sequence.prompt_logprobs.clear();
  sequence.prompt_reported = true;
}

void FinishSample(Sequence& sequence, FinishReason reason) {
  FT_CHECK(!sequence.is_finished);
  sequence.is_finished = true;
  SampleCompletion& usage = sequence.usage;
  if (!usage.matched_stop_string.has_value()) sequence.output.text += sequence.text.Flush();
  usage.finish_reason = reason;
  usage.num_prompt_tokens = static_cast<int32_t>(sequence.request().prompt.size());
  usage.num_completion_tokens = sequence.num_generated();
  usage.mode = ModeOf(*sequence.active);
  if (sequence.follower.has_value()) {
    sequence.speculation_counts.num_accepted_prediction_tokens = sequence.follower->num_accepted();
    sequence.speculation_counts.num_rejected_prediction_tokens = sequence.follower->num_rejected();
  }
  usage.speculation = sequence.speculation_counts;
  for (const ProposerCount& count : sequence.proposer_counts) {
    if (count.num_proposed > 0) usage.proposers.push_back(count);
  }
  sequence.output.completion = std::move(usage);
}

SpeculationMode ModeOf(const ActiveRequest& active) {
  return active.max_tree_nodes > 0 ? active.request->speculation.mode : SpeculationMode::kOff;
}

SampleOutput AbortUnbegun(const GenerationRequest& request, SpeculationMode mode, int32_t sample_index) {
  SampleCompletion usage = {.finish_reason = FinishReason::kAbort,
                            .num_prompt_tokens = static_cast<int32_t>(request.prompt.size()),
                            .mode = mode};
  if (mode != SpeculationMode::kOff) {
    usage.speculation.num_rejected_prediction_tokens =
        static_cast<uint64_t>(request.speculation.prediction.num_tokens());
  }
  return {.ticket = request.ticket, .sample_index = sample_index, .completion = std::move(usage)};
}

}  // namespace foretoken::verifier
