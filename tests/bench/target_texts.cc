// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/target_texts.h"

#include <fstream>
#include <utility>

#include "nlohmann/json.hpp"

namespace foretoken::bench {
namespace {

const std::string kDemo = FORETOKEN_SOURCE_DIR "/deploy/demo/";
constexpr int32_t kEndOfText = 4092;

// Decodes token by token, as a verifier without proposers.
void Continue(model::RunnableModel& target, int32_t num_tokens, TargetText& text) {
  std::vector<int32_t> blocks(target.kv.num_blocks);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  int32_t num_computed = 0;
  while (text.token_ids.size() < text.num_prompt + num_tokens && text.token_ids.back() != kEndOfText) {
    model::ForwardBatch batch;
    const auto chain = std::span<const int32_t>(text.token_ids).subspan(num_computed);
    const int32_t row =
        model::AppendSegment({.block_table = blocks, .first_position = num_computed, .chain = chain}, &batch);
    batch.logit_rows = {row};
    num_computed = static_cast<int32_t>(text.token_ids.size());
    const int32_t root_parent = -1;
    const kernels::TreeToAccept root = {.token_ids = chain.last(1),
                                        .parents = {&root_parent, 1},
                                        .context_len = static_cast<uint32_t>(num_computed),
                                        .sampling = text.sampling};
    kernels::AcceptedPath path;
    target.transformer->backend().AcceptTrees({.logits = target.transformer->Forward(batch, target.kv),
                                               .num_tokens = target.num_tokens(),
                                               .trees = {&root, 1},
                                               .paths = {&path, 1}});
    text.token_ids.push_back(path.token_ids.at(0));
  }
}

}  // namespace

model::RunnableModel LoadDemoModel(const std::string& name, int num_threads) {
  model::OpenedModel opened =
      model::OpenModel({.directory = kDemo + name, .backend = {.num_threads = num_threads}}).value();
  const model::ContextPlan context = model::PlanContext({}, opened.config).value();
  return model::LoadModel(std::move(opened), {.max_rows = 1024, .context = context}, nullptr).value();
}

std::vector<TargetText> MakeTargetTexts(model::RunnableModel& target, const TargetTextsArgs& args) {
  std::vector<TargetText> texts;
  std::ifstream file(kDemo + "prompts.jsonl");
  for (std::string line; std::getline(file, line) && texts.size() < args.num_prompts;) {
    TargetText text;
    text.token_ids = target.tokenizer.Encode(nlohmann::json::parse(line)["prompt"].get<std::string>()).value();
    text.num_prompt = text.token_ids.size();
    text.sampling = {.temperature = args.temperature, .seed = 1000 + texts.size()};
    Continue(target, args.num_tokens, text);
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace foretoken::bench
