// SPDX-License-Identifier: Apache-2.0
// Reference drafters that read the target's hidden states, written like the definition of their formats: scalar, in
// double, one sequence, no cache. Each computes a whole sequence of rows at once. Tests compare the real ones with it.
//
//   const Tensors tensors = ReadTensors("deploy/demo/eagle3/model.safetensors");
//   const Eagle head({.num_heads = 4, ...}, tensors, target_embedding);
//   const std::vector<DraftedRow> rows = head.Run({{.token_id = 7, .feature = f0}, {.token_id = 9}});
//
// Source: the papers and the readers of vLLM and SGLang, as in proposer_service/features.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace foretoken::reference {

using Vector = std::vector<double>;
Vector Doubles(const std::vector<uint16_t>& bits);  // bf16
using Tensors = std::map<std::string, Vector>;      // row-major values by name, as the file names them

// Reads all tensors of a safetensors file: BF16, F16, F32, I64 and BOOL.
Tensors ReadTensors(const std::string& path);

struct DraftInput {
  int64_t token_id = 0;
  std::optional<Vector> feature = std::nullopt;  // unset: the output of the row before
};

struct DraftedRow {
  Vector logits;  // over the draft vocabulary
  Vector output;
};

struct EagleShape {
  bool is_third = true;  // EAGLE-3; false: EAGLE-1, whose tensors have no norm but one
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  double eps = 1e-5;
  double rope_theta = 10000;
  bool norm_before_residual = false;
  bool norm_output = false;
  double logit_scale = 1;
  std::string block = "midlayer.";  // the prefix of the first layer's tensors
};

class Eagle {
 public:
  // `embedding` [V, E]; `head` [Vd, E] if the file has no lm_head.
  Eagle(const EagleShape& shape, Tensors tensors, Vector embedding, Vector head = {});

  // fc of the layers' hidden states, side by side.
  Vector Feature(const Vector& hidden_states) const;
  // All rows are of one chain.
  std::vector<DraftedRow> Run(std::span<const DraftInput> rows) const;

 private:
  const Vector& Of(const std::string& name) const { return tensors_.at(name); }

  EagleShape shape_;
  Tensors tensors_;
  Vector embedding_;
  Vector head_;
};

struct DflashShape {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t num_layers = 0;
  double eps = 1e-5;
  double rope_theta = 10000;
  std::vector<bool> is_causal;                       // of each layer, inside the block
  std::vector<std::optional<int64_t>> windows = {};  // of each layer; empty: no layer has one
  bool windows_from_context = false;                 // the windows are counted from the context's end
};

// The block of tokens behind a context, by DFlash. `features` are those of the positions before the block. Returns the
// output of each row, before the head.
std::vector<Vector> RunDflash(const DflashShape& shape, const Tensors& tensors, const Vector& embedding,
                              std::span<const Vector> features, std::span<const int64_t> token_ids);

// head [Vd, E] times the output, and DSpark's bias if the file has one. `state` is that of the row above, or empty for
// a root; a recurrent head leaves the row's own there.
Vector DflashLogits(const Tensors& tensors, const Vector& head, const Vector& output, int64_t token_id, Vector& state);

// How sure DSpark is of the row.
double DsparkConfidence(const Tensors& tensors, const Vector& output, int64_t token_id);

struct MlpShape {
  int64_t emb_dim = 0;
  int64_t inner_dim = 0;
  int64_t n_predict = 0;
  bool is_tied = false;
  bool scales_input = false;
};

// The MLP speculator, for a chain of tokens after a feature. Names are without "speculator.".
std::vector<DraftedRow> RunMlpSpeculator(const MlpShape& shape, const Tensors& tensors, const Vector& feature,
                                         std::span<const int64_t> token_ids);

// The residual layers and LM head of one Medusa head, from vLLM's names.
Vector RunMedusaHead(const Tensors& tensors, int64_t head, int64_t num_layers, const Vector& lm_head, Vector x);

}  // namespace foretoken::reference
