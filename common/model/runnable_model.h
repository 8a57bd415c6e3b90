// SPDX-License-Identifier: Apache-2.0
// Makes a checkpoint directory, or a GGUF file, ready to compute with, in two steps: cheap checks come first, and then
// the weights are read.
//
//   FT_ASSIGN_OR_RETURN(OpenedModel opened, OpenModel({.directory = "/models/llama"}));
//   FT_ASSIGN_OR_RETURN(ContextPlan context, PlanContext({}, opened.config));
//   FT_ASSIGN_OR_RETURN(RunnableModel model,
//                       LoadModel(std::move(opened), {.max_rows = 512, .context = context}, progress));
//
// Errors: the fault, the file or flag, the expected and the given value.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "common/model/context_plan.h"
#include "common/model/model_weights.h"
#include "common/model/transformer.h"
#include "common/model/weight_reader.h"
#include "common/parallel/rank_group.h"
#include "common/quantization/find_weight.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/make_backend.h"

namespace foretoken::model {

struct OpenOptions {
  std::string directory;            // or a GGUF file
  kernels::BackendOptions backend;  // shared by all ranks
  int32_t tensor_parallel = 1;      // number of ranks that share the model
};

// The parts of the time that loading a model took, in seconds.
struct LoadTimes {
  double tokenizer = 0;
  double weights = 0;
  ReadTimes reading;       // of the weights, summed over the threads' own clocks
  double transformer = 0;  // K/V, tables, and memory for passes
};

// "tokenizer 0.21 s; weights 1.04 s, 2.47 GB at 2.38 GB/s (reading 25 %, packing 51 %, digest 15 %, releasing pages 9
// %); K/V and tables 0.30 s"
std::string Describe(const LoadTimes& times);

// How the weights are stored, and what is kept of them.
struct WeightUse {
  // Of the matrices as stored, the layers' first: "BF16", "pack-quantized, 4 bits, groups of 32", "gguf Q4_K".
  std::vector<std::string> formats;
  double bits_per_weight = 0;  // of all matrices, as they are kept: with scales and padding
  size_t bytes_per_step = 0;   // of the matrices that a forward pass reads whole, on all ranks
};

struct OpenedModel {
  ModelConfig config;
  tokenizer::Tokenizer tokenizer;
  std::unique_ptr<const quantization::OpenedWeights> weights;
  std::unique_ptr<parallel::RankGroup> ranks;
  std::vector<std::string> notes;  // lines for the log about unexpected decisions for this checkpoint
  LoadTimes times;
};

absl::StatusOr<OpenedModel> OpenModel(const OpenOptions& options);

struct RunnableModel {
  ModelConfig config;
  tokenizer::Tokenizer tokenizer;
  std::unique_ptr<parallel::RankGroup> ranks;  // outlives the members below
  std::unique_ptr<Transformer> transformer;
  KvCache kv;
  std::string weight_digest;  // see WeightDigest; empty if it was not requested
  WeightUse weight_use;
  LoadTimes times;

  // All ids that both the tokenizer and the model know are below this number. Larger ids are padding of the model's
  // head, or added tokens for which the model has no row.
  int32_t num_tokens() const {
    return static_cast<int32_t>(
        std::min<int64_t>(static_cast<int64_t>(tokenizer.vocabulary().num_ids()), config.vocab_size));
  }
};

// The bytes that --expert_memory_mb allows.
inline std::optional<size_t> ExpertBytes(std::optional<int64_t> expert_memory_mb) {
  if (!expert_memory_mb.has_value()) return std::nullopt;
  return static_cast<size_t>(*expert_memory_mb) << 20;
}

struct LoadOptions {
  int32_t max_rows = 512;  // rows of one pass, all with logits
  ContextPlan context;
  bool digest_weights = false;
  // Of the experts' packed matrices on all ranks together; the others are packed when they are needed. Unset: no bound.
  std::optional<size_t> max_expert_bytes;
};

// What the model takes of the device of the rank that takes most.
absl::StatusOr<kernels::MemoryNeed> NeedOf(const OpenedModel& opened, const LoadOptions& options);

absl::StatusOr<RunnableModel> LoadModel(OpenedModel opened, const LoadOptions& options, const LoadProgress& progress);

}  // namespace foretoken::model
