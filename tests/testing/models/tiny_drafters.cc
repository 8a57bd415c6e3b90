// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/tiny_drafters.h"

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/safetensors_writer.h"
#include "tests/testing/paths.h"

namespace foretoken::testing {
namespace {

using nlohmann::json;

json BlockConfig(int64_t num_layers, const DrafterSizes& sizes = {}) {
  return {{"model_type", "llama"},
          {"hidden_size", sizes.hidden},
          {"intermediate_size", sizes.ffn},
          {"num_hidden_layers", num_layers},
          {"num_attention_heads", sizes.num_heads},
          {"num_key_value_heads", sizes.num_kv_heads},
          {"head_dim", sizes.head_dim},
          {"vocab_size", sizes.vocabulary},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5}};
}

std::string Bf16Bytes(uint16_t bits) { return {static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)}; }

void AddBlock(const std::string& block, int64_t qkv_inputs, TinyDrafter& head, const DrafterSizes& sizes = {}) {
  head.Add(block + "post_attention_layernorm.weight", {sizes.hidden});
  head.Add(block + "self_attn.q_proj.weight", {sizes.num_heads * sizes.head_dim, qkv_inputs});
  head.Add(block + "self_attn.k_proj.weight", {sizes.num_kv_heads * sizes.head_dim, qkv_inputs});
  head.Add(block + "self_attn.v_proj.weight", {sizes.num_kv_heads * sizes.head_dim, qkv_inputs});
  head.Add(block + "self_attn.o_proj.weight", {sizes.hidden, sizes.num_heads * sizes.head_dim});
  head.Add(block + "mlp.gate_proj.weight", {sizes.ffn, sizes.hidden});
  head.Add(block + "mlp.up_proj.weight", {sizes.ffn, sizes.hidden});
  head.Add(block + "mlp.down_proj.weight", {sizes.hidden, sizes.ffn});
}

void AddEagle3Block(const TinyEagle3& form, TinyDrafter& head) {
  const std::string block = form.prefix + (form.layout == Layout::kSpeculators ? "layers.0." : "midlayer.");
  for (const char* norm : {"input_layernorm", "hidden_norm"}) {
    head.Add(absl::StrCat(block, norm, ".weight"), {kTinyHidden});
  }
  AddBlock(block, 2 * kTinyHidden, head);
  if (!form.has_qk_norm) return;
  head.Add(block + "self_attn.q_norm.weight", {DrafterSizes().head_dim});
  head.Add(block + "self_attn.k_norm.weight", {DrafterSizes().head_dim});
}

json Eagle3Config(const TinyEagle3& form) {
  json flags = {{"norm_before_fc", form.norm_before_fc}, {"fc_norm", form.fc_norm}};
  json config;
  if (form.layout == Layout::kSpeculators) {
    config = {{"architectures", {"Eagle3Speculator"}}, {"speculators_model_type", "eagle3"}};
    config["transformer_layer_config"] = BlockConfig(1);
    if (form.has_qk_norm) config["transformer_layer_config"]["model_type"] = "qwen3";
    config["eagle_aux_hidden_state_layer_ids"] = {1, 3, 5};
    config.update(flags);
  } else {
    config = BlockConfig(1);
    config["architectures"] = {"LlamaForCausalLMEagle3"};
    if (form.layout == Layout::kModelOpt) {
      flags["eagle_aux_hidden_state_layer_ids"] = {0, 2, 4};
      config["eagle_config"] = flags;
    } else {
      config.update(flags);
    }
  }
  config["norm_before_residual"] = form.norm_before_residual;
  config["norm_output"] = form.norm_output;
  config["draft_vocab_size"] = form.draft_vocab_size;
  return config;
}

}  // namespace

void TinyDrafter::Add(const std::string& name, const std::vector<int64_t>& shape) {
  RandomValues random(static_cast<uint32_t>(tensors.size() + 1));
  TinyTensor tensor{.dtype = "BF16", .shape = shape};
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  const float scale = shape.size() == 1 ? 0.2f : 1.5f / std::sqrt(static_cast<float>(shape.back()));
  for (int64_t i = 0; i < count; ++i) {
    tensor.bytes += Bf16Bytes(kernels::Bf16FromFloat((shape.size() == 1 ? 1.0f : 0.0f) + scale * random.Normal()));
  }
  tensors[name] = std::move(tensor);
}

void TinyDrafter::AddIntegers(const std::string& name, const std::vector<int64_t>& values) {
  TinyTensor tensor{.dtype = "I64", .shape = {static_cast<int64_t>(values.size())}};
  for (const int64_t value : values) tensor.bytes += LengthBytes(static_cast<uint64_t>(value));
  tensors[name] = std::move(tensor);
}

std::string TinyDrafter::TensorBytes() const {
  json header;
  std::string data;
  // Wide elements first, so that all are aligned.
  for (const bool is_wide : {true, false}) {
    for (const auto& [name, tensor] : tensors) {
      if ((tensor.dtype == "I64") != is_wide) continue;
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
  }
  return SafetensorsBytes(header.dump(), 0) + data;
}

void TinyDrafter::Write(const TempDir& dir) const {
  dir.Write("config.json", config.dump());
  dir.Write(file_name, TensorBytes());
}

TinyTarget::TinyTarget() {
  TinyDrafter files;
  files.config = BlockConfig(kTinyLayers);
  files.config["architectures"] = {"LlamaForCausalLM"};
  files.Add("model.embed_tokens.weight", {kTinyVocabulary, kTinyHidden});
  files.Add("lm_head.weight", {kTinyVocabulary, kTinyHidden});
  dir_.CopyFrom(SourcePath("tests/cases/tokenizer/qwen2"));
  files.Write(dir_);
}

TinyDrafter MakeTinyEagle3(const TinyEagle3& form) {
  TinyDrafter head{.config = Eagle3Config(form)};
  head.Add(form.prefix + "fc.weight", {kTinyHidden, 3 * kTinyHidden});
  if (form.norm_before_fc) head.Add(form.prefix + "input_norm.weight", {3 * kTinyHidden});
  for (int64_t layer = 0; form.fc_norm && layer < 3; ++layer) {
    head.Add(absl::StrCat(form.prefix, "fc_norm.", layer, ".weight"), {kTinyHidden});
  }
  AddEagle3Block(form, head);
  head.Add(form.prefix + "norm.weight", {kTinyHidden});
  if (form.has_head) head.Add(form.prefix + "lm_head.weight", {form.draft_vocab_size, kTinyHidden});
  if (form.has_embedding) head.Add(form.prefix + "embed_tokens.weight", {kTinyVocabulary, kTinyHidden});
  if (form.draft_vocab_size == kTinyVocabulary) return head;
  // Row i has id 5 i, so its offset is 4 i.
  std::vector<int64_t> offsets(static_cast<size_t>(form.draft_vocab_size));
  for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = 4 * static_cast<int64_t>(i);
  head.AddIntegers(form.prefix + "d2t", offsets);
  return head;
}

TinyDrafter MakeTinyPEagle(const TinyEagle3& form) {
  TinyDrafter head = MakeTinyEagle3(form);
  head.config["mask_token_id"] = kTinyMask;
  if (form.layout == Layout::kSpeculators) {
    head.config["speculators_model_type"] = "peagle";
    head.config["speculators_config"]["proposal_methods"] = {{{"speculative_tokens", 5}}};
  }
  head.Add(form.prefix + "mask_hidden", {1, 1, 3 * kTinyHidden});
  return head;
}

TinyDrafter MakeTinyDflash(const TinyDflash& form) {
  constexpr int64_t kNumLayers = 2, kCaptured = 3;
  const DrafterSizes& sizes = form.sizes;
  TinyDrafter drafter{.config = BlockConfig(kNumLayers, sizes)};
  drafter.config["model_type"] = "qwen3";
  drafter.config["architectures"] = {"DFlashDraftModel"};
  json& config = drafter.config;
  if (form.window.has_value() && !form.uses_swa) {
    config["sliding_window"] = *form.window;
    config["layer_types"] = {"full_attention", "sliding_attention"};
  }
  if (form.layout == Layout::kSpeculators) {
    config = {{"speculators_model_type", "dflash"}, {"transformer_layer_config", config},
              {"vocab_size", sizes.vocabulary},     {"mask_token_id", kTinyMask},
              {"block_size", form.block_size},      {"aux_hidden_state_layer_ids", {1, 3, 6}}};
  } else {
    config["dflash_config"] = {
        {"target_layer_ids", {0, 2, 5}}, {"mask_token_id", kTinyMask}, {"block_size", form.block_size}};
    if (form.is_causal.has_value()) config["dflash_config"]["causal"] = *form.is_causal;
    if (form.uses_swa) config["dflash_config"].update({{"use_swa", true}, {"swa_window_size", *form.window}});
    if (form.has_sinks) config["dflash_config"]["attention_sink_bias"] = true;
  }
  drafter.Add("fc.weight", {sizes.hidden, kCaptured * sizes.hidden});
  drafter.Add("hidden_norm.weight", {sizes.hidden});
  drafter.Add("norm.weight", {sizes.hidden});
  for (int64_t layer = 0; layer < kNumLayers; ++layer) {
    const std::string block = absl::StrCat("layers.", layer, ".");
    drafter.Add(block + "input_layernorm.weight", {sizes.hidden});
    AddBlock(block, sizes.hidden, drafter, sizes);
    drafter.Add(block + "self_attn.q_norm.weight", {sizes.head_dim});
    drafter.Add(block + "self_attn.k_norm.weight", {sizes.head_dim});
    if (form.has_sinks) drafter.Add(block + "self_attn.attention_sink_bias", {sizes.num_heads});
  }
  const int64_t num_outputs = form.has_own_ends ? kTinyDraftVocabulary : sizes.vocabulary;
  if (form.markov_rank > 0) {
    drafter.Add("markov_head.markov_w1.weight", {sizes.vocabulary, form.markov_rank});
    drafter.Add("markov_head.markov_w2.weight", {num_outputs, form.markov_rank});
  }
  if (!form.markov_matrix.empty()) {
    const bool is_gated = form.markov_matrix == "gate_proj";
    const int64_t rows = is_gated ? form.markov_rank : 3 * form.markov_rank;
    const int64_t columns = sizes.hidden + (is_gated ? form.markov_rank : 2 * form.markov_rank);
    drafter.Add(absl::StrCat("markov_head.", form.markov_matrix, ".weight"), {rows, columns});
    drafter.Add(absl::StrCat("markov_head.", form.markov_matrix, ".bias"), {rows});
    drafter.config["markov_head_type"] = is_gated ? "gated" : "rnn";
  }
  if (form.is_dspark()) {
    drafter.Add("confidence_head.proj.weight", {1, sizes.hidden + (form.has_own_ends ? 0 : form.markov_rank)});
    drafter.Add("confidence_head.proj.bias", {1});
  }
  if (!form.has_own_ends) return drafter;
  drafter.config["draft_vocab_size"] = num_outputs;
  drafter.Add("embed_tokens.weight", {sizes.vocabulary, sizes.hidden});
  drafter.Add("lm_head.weight", {num_outputs, sizes.hidden});
  std::vector<int64_t> offsets(static_cast<size_t>(num_outputs));
  for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = 4 * static_cast<int64_t>(i);
  drafter.AddIntegers("d2t", offsets);
  return drafter;
}

TinyDrafter MakeTinyEagle(const TinyEagle& form) {
  const DrafterSizes& sizes = form.sizes;
  TinyDrafter head{.config = BlockConfig(1, sizes)};
  head.config["architectures"] = {"LlamaForCausalLM"};
  head.Add("fc.weight", {sizes.hidden, 2 * sizes.hidden});
  if (form.has_fc_bias) head.Add("fc.bias", {sizes.hidden});
  if (form.has_embedding) head.Add("embed_tokens.weight", {sizes.vocabulary, sizes.hidden});
  AddBlock("layers.0.", sizes.hidden, head, sizes);
  if (!form.has_norms) return head;
  for (const char* const norm : {"embed_layernorm", "layers.0.input_layernorm", "lm_head_layernorm"}) {
    head.Add(absl::StrCat(norm, ".weight"), {sizes.hidden});
  }
  return head;
}

TinyDrafter MakeTinyMlp(const TinyMlp& form) {
  TinyDrafter drafter{.config = {{"architectures", {"MLPSpeculatorPreTrainedModel"}},
                                 {"emb_dim", kTinyHidden},
                                 {"inner_dim", form.inner_dim},
                                 {"n_predict", form.n_predict},
                                 {"vocab_size", kTinyVocabulary},
                                 {"tie_weights", form.is_tied},
                                 {"scale_input", form.scales_input}}};
  for (int64_t i = 0; i < form.n_predict; ++i) {
    if (i < (form.is_tied ? 2 : form.n_predict)) {
      drafter.Add(absl::StrCat(form.prefix, "proj.", i, ".weight"),
                  {form.inner_dim, i == 0 ? kTinyHidden : form.inner_dim});
    }
    if (i > 0 && form.is_tied) continue;
    drafter.Add(absl::StrCat(form.prefix, "emb.", i, ".weight"), {kTinyVocabulary, form.inner_dim});
    drafter.Add(absl::StrCat(form.prefix, "head.", i, ".weight"), {kTinyVocabulary, form.inner_dim});
    drafter.Add(absl::StrCat(form.prefix, "ln.", i, ".weight"), {form.inner_dim});
    drafter.Add(absl::StrCat(form.prefix, "ln.", i, ".bias"), {form.inner_dim});
  }
  return drafter;
}

TinyDrafter MakeTinyMedusa(const TinyMedusa& form) {
  constexpr int64_t kMedusaHeads = 3;
  TinyDrafter drafter;
  drafter.config = form.has_first_names
                       ? json{{"medusa_num_heads", kMedusaHeads}, {"medusa_num_layers", form.num_layers}}
                       : json{{"num_heads", kMedusaHeads}, {"num_hidden_layers", form.num_layers}};
  if (form.num_lm_heads == 1) drafter.config["original_lm_head"] = true;
  if (form.has_first_names) drafter.file_name = "medusa_lm_head.safetensors";
  const int64_t num_outputs = form.num_listed > 0 ? form.num_listed : kTinyVocabulary;
  for (int64_t m = 0; m < kMedusaHeads; ++m) {
    for (int64_t j = 0; j < form.num_layers; ++j) {
      const std::string layer =
          form.has_first_names ? absl::StrCat(m, ".", j, ".linear.") : absl::StrCat("blocks.", m, ".layers.", j, ".");
      drafter.Add(layer + "weight", {kTinyHidden, kTinyHidden});
      if (form.has_bias) drafter.Add(layer + "bias", {kTinyHidden});
    }
    if (m >= form.num_lm_heads) continue;
    drafter.Add(form.has_first_names ? absl::StrCat(m, ".", form.num_layers, ".weight")
                                     : absl::StrCat("lm_heads.", m, ".weight"),
                {num_outputs, kTinyHidden});
  }
  if (form.num_listed == 0) return drafter;
  std::vector<int64_t> ids(static_cast<size_t>(form.num_listed));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = kTinyVocabulary - 1 - 3 * static_cast<int64_t>(i);
  drafter.AddIntegers("token_map", ids);
  return drafter;
}

std::vector<Row> RunDraftChain(proposer::DraftModel& model, const std::vector<int32_t>& token_ids,
                               const std::vector<std::vector<uint16_t>>& features) {
  std::vector<Row> rows;
  const auto run = [&](const proposer::DraftPass& pass) {
    const kernels::ConstTensorView logits = model.Forward(pass);
    const int64_t width = logits.shape[1];
    std::vector<float> values(static_cast<size_t>(logits.shape.num_elements()));
    model.backend().Copy(values.data(), logits.data, values.size() * sizeof(float), kernels::CopyKind::kToHost);
    model.Synchronize();
    for (int64_t row = 0; row < logits.shape[0]; ++row) {
      rows.emplace_back(values.begin() + row * width, values.begin() + (row + 1) * width);
    }
  };
  const auto num_given = static_cast<int32_t>(features.size());
  std::vector<int32_t> blocks(token_ids.size() / kernels::kKvBlockSize + 1);
  std::iota(blocks.begin(), blocks.end(), 0);
  proposer::DraftPass given;
  model::AppendSegment({.block_table = blocks, .chain = std::span(token_ids).first(num_given)}, &given.batch);
  for (int32_t row = 0; row < num_given; ++row) {
    given.batch.logit_rows.push_back(row);
    given.given_rows.push_back(row);
    given.given_features.insert(given.given_features.end(), features[row].begin(), features[row].end());
    given.steps.push_back(0);
  }
  run(given);
  const int32_t first_slot = static_cast<int32_t>(blocks.size()) * kernels::kKvBlockSize;
  std::vector<int32_t> path;
  for (size_t i = features.size(); i < token_ids.size(); ++i) {
    proposer::DraftPass pass;
    const int32_t parent = path.empty() ? model::SlotOf(blocks, num_given - 1) : path.back();
    path.push_back(first_slot + static_cast<int32_t>(path.size()));
    const model::GrownRow row = {.token_id = token_ids[i], .ancestor_slots = path};
    model::AppendGrownSegment({.block_table = blocks, .chain_len = num_given, .rows = {&row, 1}}, &pass.batch);
    pass.batch.logit_rows = pass.predicted_rows = {0};
    pass.parent_slots = {parent};
    pass.steps = {static_cast<int32_t>(path.size())};
    run(pass);
  }
  return rows;
}

std::vector<std::vector<uint16_t>> RandomFeatures(size_t count, int64_t width, uint32_t seed) {
  RandomValues random(seed);
  std::vector<std::vector<uint16_t>> features(count);
  for (std::vector<uint16_t>& feature : features) {
    for (int64_t i = 0; i < width; ++i) feature.push_back(kernels::Bf16FromFloat(random.Normal()));
  }
  return features;
}

}  // namespace foretoken::testing
