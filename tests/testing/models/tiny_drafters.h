// SPDX-License-Identifier: Apache-2.0
// Small random drafters that read hidden states, and the files of a target for them, in the layouts that publishers
// use. A test changes the configuration or a tensor before it writes the files.
//
//   const TinyTarget target;
//   TinyDrafter head = MakeTinyEagle3({.norm_output = true});
//   head.config["logit_scale"] = 0.5;
//   const TempDir dir;
//   head.Write(dir);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proposer_service/draft/draft_model.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

inline constexpr int64_t kTinyHidden = 64;        // E of the target and of the drafters
inline constexpr int64_t kTinyVocabulary = 1216;  // V; the tokenizer has 1,206 ids
inline constexpr int64_t kTinyLayers = 6;         // L of the target

// The sizes of a drafter and of its target. A test whose target really runs gives the sizes of that target.
struct DrafterSizes {
  int64_t hidden = kTinyHidden, ffn = 96;
  int64_t num_heads = 4, num_kv_heads = 2, head_dim = 16;
  int64_t vocabulary = kTinyVocabulary;
};

// The configuration, the tokenizer, the embedding and the head of a target. It has no layers, so it cannot run.
class TinyTarget {
 public:
  TinyTarget();
  const std::string& directory() const { return dir_.path(); }

 private:
  TempDir dir_;
};

struct TinyTensor {
  std::string dtype;  // BF16, or I64
  std::vector<int64_t> shape;
  std::string bytes;
};

struct TinyDrafter {
  nlohmann::json config;
  std::map<std::string, TinyTensor> tensors;
  std::string file_name = "model.safetensors";

  // Adds random values. A vector gets gains around 1.
  void Add(const std::string& name, const std::vector<int64_t>& shape);
  void AddIntegers(const std::string& name, const std::vector<int64_t>& values);
  std::string TensorBytes() const;  // of the file
  void Write(const TempDir& dir) const;
};

enum class Layout { kPlain, kModelOpt, kSpeculators };

struct TinyEagle3 {
  Layout layout = Layout::kPlain;
  bool norm_before_fc = false;
  bool fc_norm = false;
  bool norm_before_residual = false;
  bool norm_output = false;
  bool has_qk_norm = false;
  bool has_embedding = false;
  bool has_head = true;
  std::string prefix = "";         // of all names
  int64_t draft_vocab_size = 200;  // kTinyVocabulary: no map
};
TinyDrafter MakeTinyEagle3(const TinyEagle3& form);
// The same head as one of P-EAGLE.
inline constexpr int64_t kTinyMask = 1202;  // the mask token
TinyDrafter MakeTinyPEagle(const TinyEagle3& form);

struct TinyDflash {
  Layout layout = Layout::kPlain;  // or kSpeculators
  int64_t block_size = 5;
  std::optional<bool> is_causal = std::nullopt;  // of all layers, by a key
  std::optional<int64_t> window = std::nullopt;  // of the second layer, by its type
  bool uses_swa = false;                         // the window is of all layers, by use_swa
  bool has_sinks = false;
  int64_t markov_rank = 0;         // above 0: DSpark with both of its heads
  std::string markov_matrix = "";  // that makes the Markov head a gated or a recurrent one: gate_proj or joint_proj
  bool has_own_ends = false;       // an embedding, and a head for a part of the vocabulary
  // DSpark with the confidence head alone.
  bool has_confidence = false;
  DrafterSizes sizes = {};

  bool is_dspark() const { return markov_rank > 0 || has_confidence; }
};
inline constexpr int64_t kTinyDraftVocabulary = 200;  // Vd where there are own ends: ids 0, 5, 10, ...
TinyDrafter MakeTinyDflash(const TinyDflash& form);

struct TinyEagle {
  bool has_fc_bias = true;
  bool has_embedding = true;
  bool has_norms = false;
  DrafterSizes sizes = {};
};
TinyDrafter MakeTinyEagle(const TinyEagle& form);

struct TinyMlp {
  int64_t inner_dim = 48;
  int64_t n_predict = 3;
  bool is_tied = false;
  bool scales_input = true;
  std::string prefix = "speculator.";  // of all names
};
TinyDrafter MakeTinyMlp(const TinyMlp& form);

struct TinyMedusa {
  bool has_first_names = true;  // those of the first release; false: vLLM's
  int64_t num_layers = 1;
  bool has_bias = true;
  int64_t num_lm_heads = 3;  // 3, one for each head; 1: shared; 0: the target's
  int64_t num_listed = 0;    // ids in the token map; 0: there is none
};
TinyDrafter MakeTinyMedusa(const TinyMedusa& form);

using Row = std::vector<float>;

// Runs a chain of rows: the first `features.size()` rows with these features, in one pass, and each further row with
// the output of the row before. Returns the logits of every row.
std::vector<Row> RunDraftChain(proposer::DraftModel& model, const std::vector<int32_t>& token_ids,
                               const std::vector<std::vector<uint16_t>>& features);

// Random features of this width.
std::vector<std::vector<uint16_t>> RandomFeatures(size_t count, int64_t width, uint32_t seed);

}  // namespace foretoken::testing
