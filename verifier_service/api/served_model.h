// SPDX-License-Identifier: Apache-2.0
// The model's facts that the service reports and checks requests against. Made once, at the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "kernels/ops.h"

namespace foretoken::chat {
class ChatTemplate;
}

namespace foretoken::verifier {

struct ServedModel {
  std::string name;
  std::string architecture;  // "LlamaForCausalLM"
  uint64_t num_parameters = 0;
  const tokenizer::Tokenizer* tokenizer = nullptr;
  const chat::ChatTemplate* chat_template = nullptr;  // null: the checkpoint has none, or chat_template_error
  std::string chat_template_error;                    // why the checkpoint's template cannot be parsed
  int32_t vocabulary_size = 0;     // every id with a tokenizer entry and a row in the model is below it
  int32_t max_context_tokens = 0;  // prompt and output together
  std::vector<int32_t> end_token_ids;
  std::string vocabulary_fingerprint;  // hex
  std::string numerics_fingerprint;
  std::vector<std::string> weight_formats;   // of the layers' matrices in the checkpoint
  std::string numeric_mode;                  // Backend::Describe
  double bits_per_weight = 0;                // as kept
  size_t bytes_per_step = 0;                 // of weights
  double read_bytes_per_second = 0;          // of memory; 0: not known
  kernels::SamplingParams default_sampling;  // for fields that a request leaves unset
  std::vector<std::string> proposers;        // method names
  int32_t max_tree_nodes = 0;                // the server's limit for a sequence in a step
  size_t max_prompt_bytes = size_t{4} << 20;
  bool allows_step_reports = false;
  bool allows_always_speculation = true;
};

}  // namespace foretoken::verifier
