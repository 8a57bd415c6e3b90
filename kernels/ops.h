// SPDX-License-Identifier: Apache-2.0
// The arguments of every op: plain structs, shared by all backends. Shape letters are the legend's in
// common/tensor/shape.h. Pointers, including the pointers in views, point to the backend's memory. Spans point to host
// memory, and so do the parts of a WeightSource. The caller may free a span that an op reads when the call returns. A
// span that an op fills (paths, children, scores) is filled when Backend::Synchronize returns, and must stay until
// then.
//
// Row invariance (E1): every value that an op writes for a row is a pure function of that row's inputs, bit for bit. It
// depends on no other row, row count, thread count, slot or block number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kv_cache.h"
#include "kernels/stored_matrix.h"
#include "kernels/tensor_view.h"

namespace foretoken::kernels {

// One forward pass, flat. A *segment* is the rows of one sequence: consecutive, parents before children.
// A row sees positions [0, chain_len) through its segment's block table. Then it sees its ancestor slots (its own slot
// last), which stand at logical positions chain_len, chain_len + 1, ... A row of a chain has no ancestors, and
// chain_len covers its own position. Always: positions[row] + 1 == chain_len + number of ancestors.
struct BatchView {
  int32_t num_rows = 0;                         // T
  int32_t num_segments = 0;                     // S
  const int32_t* token_ids = nullptr;           // [T]
  const int32_t* positions = nullptr;           // [T] logical position, zero-based
  const int32_t* slots = nullptr;               // [T] where the row's K/V is stored
  const int32_t* chain_lens = nullptr;          // [T]
  const int32_t* ancestor_begins = nullptr;     // [T + 1] into ancestor_slots
  const int32_t* ancestor_slots = nullptr;      // nearest the root first
  const int32_t* segment_begins = nullptr;      // [S + 1] first row of each segment
  const int32_t* block_table_begins = nullptr;  // [S + 1] into block_tables
  const int32_t* block_tables = nullptr;        // block of positions [16 i, 16 i + 16)

  friend bool operator==(const BatchView&, const BatchView&) = default;
};

// A matrix in the backend's own layout. Row n of the matrix computes output n.
class Weight {
 public:
  virtual ~Weight() = default;
  int64_t out_features() const { return out_features_; }  // N
  int64_t in_features() const { return in_features_; }    // K
  size_t num_bytes() const { return num_bytes_; }         // as laid out, padding included

 protected:
  Weight(int64_t out_features, int64_t in_features, size_t num_bytes)
      : out_features_(out_features), in_features_(in_features), num_bytes_(num_bytes) {}

 private:
  int64_t out_features_;
  int64_t in_features_;
  size_t num_bytes_;
};

enum class WeightQuantization {
  kNone,
  // e4m3, with a scale for each output. The rows that such a weight multiplies become e4m3 too, with a scale for each
  // row. Only the CUDA backend has it.
  kFp8,
  // Integers, with a scale for each group of inputs of an output (QuantizeGroup in quantize.h).
  kInt8,
  kInt4,
};

// How a matrix is kept, and what it multiplies.
struct Quantization {
  constexpr Quantization(WeightQuantization kept_as = WeightQuantization::kNone, int32_t inputs = 32, bool int8 = false)
      : weights(kept_as), group_size(inputs), int8_rows(int8) {}

  WeightQuantization weights;
  int32_t group_size;  // inputs that share a scale: 32, 64 or 128; for integers
  // The rows that a matrix of integers multiplies become int8, with a scale for each group of a row. Otherwise they
  // stay bf16.
  bool int8_rows;

  friend bool operator==(const Quantization&, const Quantization&) = default;
};

struct WeightSource {
  // Host views [n_i, K] in F32, F16 or BF16, stacked along the outputs: q, k and v make one weight. F32 and F16 are
  // rounded to bf16, to nearest, ties to even.
  std::span<const ConstTensorView> parts;
  // Instead of parts: stored integers that the backend keeps as they are (Backend::KeptGroups), stacked likewise.
  // Their pages are the caller's matter.
  std::span<const StoredPart> stored;
  // The range of each part's inputs that the weight takes; unset: all of them.
  std::optional<IndexRange> inputs;
  Quantization quantization;
  // Called with whole rows of a part: `fetch` before the rows are read, so that the system can load them in time, and
  // `release` when they will not be read again, so that the system can reclaim their pages. Each is called once for
  // every row, in the same ranges, on the thread that reads the rows.
  // Threads: several call at the same time.
  std::function<void(const void* begin, size_t num_bytes)> fetch;
  std::function<void(const void* begin, size_t num_bytes)> release;
};

enum class OutputMode { kStore, kAdd };

struct EmbedArgs {
  const Weight* weight = nullptr;      // [V, E]
  const int32_t* token_ids = nullptr;  // [T]
  // The id of the weight's first row, for a rank that holds a part of the vocabulary. Ids without a row give zeros.
  // Unset: the weight has all ids.
  std::optional<int64_t> first_token_id;
  TensorView out;  // [T, E] f32
};

// out = x weight^T (+ bias), or out += the same. Every output element is one sum over K, in an order that the weight's
// shape and the backend fix.
struct MatMulArgs {
  ConstTensorView x;  // [T, K] bf16
  const Weight* weight = nullptr;
  const float* bias = nullptr;  // [N], or null
  OutputMode mode = OutputMode::kStore;
  TensorView out;  // [T, N] f32
};

// out[i] = x[r] / sqrt(mean(x[r]^2) + eps) * gain, or out[i] += the same, for r = rows[i], or r = i where rows is null.
struct RmsNormArgs {
  ConstTensorView x;              // [*, E] f32
  const int32_t* rows = nullptr;  // [T], or null
  const float* gain = nullptr;    // [E]
  float eps = 0;
  OutputMode mode = OutputMode::kStore;
  TensorView out;  // [T, E] bf16, or f32 where mode is kAdd
};

// out[i][p] = mean(x[i]^2) over the columns of part p; the parts follow each other from column 0 on.
struct MeanSquaresArgs {
  ConstTensorView x;                   // [T, at least the sum of widths] f32
  std::array<int64_t, 2> widths = {};  // of the two parts
  TensorView out;                      // [T, 2] f32
};

// Splits qkv into heads. Normalises q and k where gains are given: per head (Qwen3), or, where their mean squares are
// given, the whole q and the whole k (OLMo 2). Rotates the first R dimensions of q and k by the row's position (pairs
// (i, i + R/2), as Hugging Face does). Stores k and v in the row's slot, rounded to the cache's dtype.
struct RopeStoreKvArgs {
  ConstTensorView qkv;                  // [T, (H + 2 K) D] f32
  const float* q_gain = nullptr;        // [D], of the whole q [H D], or null
  const float* k_gain = nullptr;        // [D], of the whole k [K D], or null
  const float* mean_squares = nullptr;  // [T, 2] of q and k, over the heads of all ranks; null: norms are of heads
  float eps = 0;
  std::optional<int32_t> rotary_dim;  // R, even, at most D; 0 rotates nothing; unset: D
  const float* cos = nullptr;         // [max positions, R / 2]
  const float* sin = nullptr;         // [max positions, R / 2]
  BatchView batch;
  KvCacheView kv;
  int32_t layer = 0;
  TensorView q;  // [T, H D] f32
};

// Softmax attention of every row over the positions that BatchView gives it. It reads K and V only from the cache, in
// tiles cut at multiples of a constant in logical position. With a window w, a row at position p sees (p - w, p], or
// (o - w, p] where the window is counted from another position o, at most p. With a cap c, a score s becomes
// c tanh(s / c). With sinks, a head's softmax has one score more, which belongs to no position.
struct AttentionArgs {
  ConstTensorView q;  // [T, H D] f32
  BatchView batch;
  KvCacheView kv;
  int32_t layer = 0;
  std::optional<int32_t> window;
  const int32_t* window_origins = nullptr;  // [T] where each row's window is counted from; null: its own position
  float scale = 0;                          // multiplies q . k
  std::optional<float> cap;
  const float* sinks = nullptr;  // [H], or null
  TensorView out;                // [T, H D] bf16
};

enum class Activation {
  kSigmoid,    // 1 / (1 + exp(-x))
  kSilu,       // x / (1 + exp(-x))
  kGelu,       // x (1 + erf(x / sqrt(2))) / 2
  kGeluTanh,   // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  kGeluQuick,  // x / (1 + exp(-1.702 x))
};

// What the gate of an MLP does: f(gate) * (up + up_offset), where f is any activation but kGelu.
struct Gating {
  Activation activation = Activation::kSilu;
  // A limit l cuts values before that: gate at l, and up at -l and l.
  std::optional<float> limit;
  float up_offset = 0;
  bool is_interleaved = false;  // gate and up take turns, gate first; otherwise all of gate comes before all of up

  friend bool operator==(const Gating&, const Gating&) = default;
};

// The gated linear unit.
struct GluArgs {
  ConstTensorView gate_up;  // [T, 2 F] f32
  Gating gating;
  TensorView out;  // [T, F] bf16
};

// How the router's scores become the weights of the chosen experts.
enum class ExpertWeighting {
  kSoftmaxOverChosen,
  kSoftmaxOverAll,
  kSigmoidOverChosen,  // divided by the sum of the chosen ones
  kSigmoid,
};

struct Expert {
  const Weight* gate_up = nullptr;      // [2 F, E]
  const Weight* down = nullptr;         // [E, F]
  const float* gate_up_bias = nullptr;  // [2 F], or null
  const float* down_bias = nullptr;     // [E], or null
};

// The experts of a layer in the backend's own form (Backend::PrepareExperts).
class ExpertSet {
 public:
  virtual ~ExpertSet() = default;
};

// Each row goes through its experts, those with the num_chosen largest scores (sigmoid(score) + bias, if there is a
// bias), ties to the lower index:
//   out = sum over the row's experts of weight * scale * (down glu(gate_up x + gate_up_bias) + down_bias),
// added in ascending order of the experts. A CPU reads an expert's weights once for all rows that chose it, a GPU once
// for each tile of them.
struct ExpertsArgs {
  ConstTensorView x;                   // [T, E] bf16
  ConstTensorView scores;              // [T, N] f32
  const ExpertSet* experts = nullptr;  // N
  int32_t num_chosen = 0;
  const float* bias = nullptr;  // [N] in the choice alone, for sigmoids; or null
  ExpertWeighting weighting = ExpertWeighting::kSoftmaxOverChosen;
  float scale = 1;
  Gating gating;
  TensorView out;  // [T, E] f32
};

// out = f(x + bias), or out += the same.
struct ActivateArgs {
  ConstTensorView x;            // [T, N] f32
  const float* bias = nullptr;  // [N], or null
  Activation activation = Activation::kSilu;
  OutputMode mode = OutputMode::kStore;
  TensorView out;  // [T, N] f32, or bf16 where mode is kStore
};

// A step of a gated recurrent cell. The row's gates are g, c and o, one behind the other:
//   state = sigmoid(g) state + (1 - sigmoid(g)) tanh(c),  out = tanh(o)
struct RecurrentCellArgs {
  ConstTensorView gates;  // [T, 3 N] f32
  TensorView state;       // [T, N] f32
  TensorView out;         // [T, N] bf16
};

// out = (p_0 + p_1 + ...) * scale, or out += the same. The pieces are the ranks' parts of one product; each element is
// added in the order of the ranks. `out` may be the first piece.
struct SumRanksArgs {
  ConstTensorView pieces;  // [R, T, E] f32
  float scale = 1;
  OutputMode mode = OutputMode::kStore;
  TensorView out;  // [T, E] f32
};

// Puts the ranks' columns of one matrix side by side.
struct JoinColumnsArgs {
  // Rank r's columns, [T, widths[r]] f32, dense, begin at pieces + r * piece_elements.
  const float* pieces = nullptr;
  int64_t piece_elements = 0;
  std::span<const int64_t> widths;  // [R]
  TensorView out;                   // [T, sum of widths] f32
};

// Copies rows into columns of another matrix: out[to[i]][first_column + c] = x[from[i]][c]. A null list means i. Values
// are rounded to bf16, to nearest, ties to even, where x is f32 and out is bf16. Targets are distinct, and out does not
// overlap x.
struct CopyRowsArgs {
  ConstTensorView x;              // [*, C] f32 or bf16
  const int32_t* from = nullptr;  // [n] rows of x, or null
  const int32_t* to = nullptr;    // [n] rows of out, or null
  int32_t num_rows = 0;           // n
  TensorView out;                 // [*, at least first_column + C] f32 or bf16
  int64_t first_column = 0;
};

// Makes rows over a whole vocabulary from rows over a part of it: out[i][token_ids[c]] = logits[i][c], and minus
// infinity elsewhere.
struct SpreadLogitsArgs {
  ConstTensorView logits;              // [T, C] f32
  const int32_t* token_ids = nullptr;  // [C] distinct, below V
  TensorView out;                      // [T, V] f32
};

// logits = cap tanh(logits * scale / cap), or logits * scale without a cap.
struct CapLogitsArgs {
  TensorView logits;  // [T, V] f32
  float scale = 1;
  std::optional<float> cap;
};

struct KvMove {
  int32_t from_slot = 0;
  int32_t to_slot = 0;
};

// Moves K and V of whole slots, in all layers. It reads all slots before it writes any. Targets are distinct.
struct MoveKvArgs {
  KvCacheView kv;
  std::span<const KvMove> moves;
};

// The parameters of a draw from a row of logits. The caller has validated the values.
struct SamplingParams {
  float temperature = 1;         // below 1e-5: plain argmax
  int32_t top_k = 0;             // 0: off
  float top_p = 1;               // 1: off
  float min_p = 0;               // 0: off; relative to the largest probability
  float repetition_penalty = 1;  // 1: off; divides positive, multiplies negative logits of tokens in the context
  float presence_penalty = 0;    // subtracted from tokens generated at least once
  float frequency_penalty = 0;   // subtracted once per generated occurrence
  uint64_t seed = 0;             // Philox key
  uint64_t coin_nonce = 0;       // rejection sampling: makes the coins of a request its own
  uint32_t sample_index = 0;

  bool is_greedy() const { return temperature < 1e-5f; }
  uint64_t coin_key() const { return seed ^ coin_nonce; }
};

// A token of the context.
struct TokenCount {
  int32_t token_id = 0;
  int32_t num_generated = 0;  // 0: only the prompt has it
};

struct LogitBias {
  int32_t token_id = 0;
  float bias = 0;
};

// The rule by which the target's rows and a tree decide tokens; see AcceptTreesArgs.
enum class VerificationRule { kKeyedDraw, kRejectionSampling };

// The children that one proposer drew at one node. Without draft probabilities each child is a guess: a point mass.
struct DrawnChildren {
  int32_t parent = 0;                        // node index
  std::span<const int32_t> children;         // node indices, in the order of sampling
  std::span<const int32_t> draft_token_ids;  // [k] the ids that they were sampled from, without replacement; distinct
  std::span<const float> draft_probs;        // [k] at least 0; the distribution divides them by their sum
};

// One sequence of a verification. Node 0 is the root; its row is first_logit_row, node i's is first_logit_row + i.
struct TreeToAccept {
  int32_t first_logit_row = 0;
  std::span<const int32_t> token_ids;  // [N] of the nodes; the root's is the root token
  std::span<const int32_t> parents;    // [N] parents[0] == -1; parents[i] < i
  uint32_t context_len = 0;            // t of the token drawn at the root: the tokens before it, root included
  SamplingParams sampling;
  std::span<const TokenCount> counts;  // of the context, root included; ids distinct
  std::span<const LogitBias> bias;     // ids distinct
  // [N] for each node: a mask of the ids that may be drawn at its row, bit id % 32 of word id / 32 of ceil(V / 32)
  // words; null: all ids. Empty: no node has a mask.
  std::span<const uint32_t* const> masks;
  // The number of most likely ids to report beside the drawn one. They come from the unmodified row at temperature 1:
  // the whole row, ids at or beyond V too. Unset: no log-probabilities at all.
  std::optional<int32_t> num_top_logprobs;

  VerificationRule rule = VerificationRule::kKeyedDraw;
  // Rejection sampling: nodes [0, num_rows) have rows. The other nodes are tested like any drawn child. If such a node
  // is accepted, the walk ends. `drawn` holds the children of every node that has a row, ordered by parent, and at one
  // node by proposer. A child may stand in several groups.
  int32_t num_rows = 0;
  std::span<const DrawnChildren> drawn;
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;  // natural logarithm
};

struct RowLogprobs {
  TokenLogprob token;             // the drawn (or given) token
  std::vector<TokenLogprob> top;  // by (logprob descending, id ascending)
};

enum class DrawStatus { kOk, kNonFiniteLogits, kEmptySupport };

// The tokens that a walk emits: the tokens of the accepted nodes, and one more. node_idx[i] is the node whose row
// emitted token_ids[i]: node_idx[0] == 0, and node_idx[i + 1] is the child that carried token_ids[i].
struct AcceptedPath {
  DrawStatus status = DrawStatus::kOk;  // not kOk: token_ids ends before the row that failed
  std::vector<int32_t> token_ids;
  std::vector<int32_t> node_idx;
  std::vector<RowLogprobs> logprobs;  // as token_ids, where requested
};

// Walks every tree from its root. Filters, in this order, turn a node's row into target_prob: bias, penalties (which
// also count the tokens on the node's own path), mask, temperature, top_k, top_p, min_p. Each cut orders by (value
// descending, id ascending). Rows off the walk are not drawn.
// Keyed draw: the token at a node is
//   argmax_v (log target_prob(v) + g(v)),  ties to the lowest id,
// and the walk descends while a child carries the token. g = -log(-log1p(-u)), with u in (0, 1) from the token's Philox
// word, purpose kTargetDraw.
// Rejection sampling: kernels/rejection_sampling.h, with coins of purpose kRejectionCoin.
struct AcceptTreesArgs {
  ConstTensorView logits;  // [rows, >= V] f32
  int32_t num_tokens = 0;  // V: ids at or beyond it never win and carry no probability
  std::span<const TreeToAccept> trees;
  std::span<AcceptedPath> paths;  // one per tree, filled when the backend is synchronised
};

// How the continuations of a draft's row are ordered.
enum class BranchOrder {
  kKeyedDraw,  // by the chance that the target, whose noise is known, draws them
  kDraftProb,  // by the draft's own distribution, without noise
};

// A row of a draft model, and the request for its best continuations.
struct RowToBranch {
  int32_t logit_row = 0;
  SamplingParams sampling;   // the target's; penalties are not applied
  uint32_t t = 0;            // the index of the row's next token
  int32_t num_children = 0;  // at least 1
  BranchOrder order = BranchOrder::kKeyedDraw;
  // The ids that may be children: bit id % 32 of word id / 32 of ceil(V / 32) words in host memory; null: all ids.
  const uint32_t* mask = nullptr;
};

struct ScoredToken {
  int32_t token_id = 0;
  float score = 0;
};

struct RowChildren {
  DrawStatus status = DrawStatus::kOk;  // not kOk: no children
  std::vector<ScoredToken> children;    // by (score descending, id ascending)
};

// Finds the tokens that the target would most likely draw if this model were the target: the first num_children by
//   score(v) = log draft_prob(v) + g(v)
// with the filters and the noise (purpose kTargetDraw) of the target's own draw at t. So the first child is the token
// that AcceptTrees would draw from the row, except where rounding cannot tell scores apart. When children are ordered
// by draft_prob, g is 0. Below the greedy temperature g is 0 and the distribution is that of temperature 1, without
// cuts. The mask comes before the filters. draft_prob sums to 1 over the tokens that the mask and the cuts keep.
struct BranchRowsArgs {
  ConstTensorView logits;  // [rows, >= V] f32
  int32_t num_tokens = 0;  // V: ids at or beyond it are no children and carry no probability
  std::span<const RowToBranch> rows;
  std::span<RowChildren> children;  // one per row, filled when the backend is synchronised
};

// Scores given tokens: log-probabilities from the unmodified rows at temperature 1.
struct ScoreTokensArgs {
  ConstTensorView logits;  // [rows, width] f32
  int32_t first_row = 0;
  std::span<const int32_t> token_ids;  // one per row from first_row on
  int32_t num_top = 0;
  std::span<RowLogprobs> scores;  // one per token, filled when the backend is synchronised
};

}  // namespace foretoken::kernels
