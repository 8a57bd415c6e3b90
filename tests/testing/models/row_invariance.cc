// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/row_invariance.h"

#include <algorithm>
#include <string>

#include "common/model/block_pool.h"
#include "kernels/check.h"
#include "kernels/ops.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr int32_t kBlock = kernels::kKvBlockSize;

int32_t NumBlocks(int32_t num_positions) { return (num_positions + kBlock - 1) / kBlock; }

template <typename T>
void Shuffle(std::vector<T>& values, RandomValues& random) {
  for (auto i = static_cast<int32_t>(values.size()); i > 1; --i) std::swap(values[i - 1], values[random.Below(i)]);
}

// Deals the blocks of the cache in random order, each once.
class BlockDealer {
 public:
  BlockDealer(const LoadedModel& model, RandomValues& random) : blocks_(Iota(0, model.kv.num_blocks)) {
    Shuffle(blocks_, random);
  }
  std::vector<int32_t> Deal(int32_t num_positions) {
    const auto count = static_cast<size_t>(NumBlocks(num_positions));
    FT_CHECK(count <= blocks_.size());
    std::vector<int32_t> dealt(blocks_.end() - count, blocks_.end());
    blocks_.resize(blocks_.size() - count);
    return dealt;
  }

 private:
  std::vector<int32_t> blocks_;
};

std::vector<int32_t> RandomChunks(int32_t count, int32_t max_size, RandomValues& random) {
  std::vector<int32_t> chunks;
  chunks.reserve(count);
  for (int32_t i = 0; i < count; ++i) chunks.push_back(1 + random.Below(max_size));
  return chunks;
}

// A batch, and the expected logits of each row.
struct ExpectedBatch {
  model::ForwardBatch batch;
  std::vector<const Row*> expected;
};

// Runs the batch and requests the logits of all rows in a random order.
AssertionResult RunAndCompare(LoadedModel& model, ExpectedBatch& wanted, RandomValues& random) {
  std::vector<int32_t>& rows = wanted.batch.logit_rows;
  rows = Iota(0, wanted.batch.num_rows());
  Shuffle(rows, random);
  const kernels::ConstTensorView logits = model.transformer->Forward(wanted.batch, model.kv);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row row = RowOf(model, logits, static_cast<int64_t>(i));
    if (AssertionResult same = SameBits(row, *wanted.expected[rows[i]]); !same) {
      return same << ", row " << rows[i] << " of " << rows.size() << " in the batch, position "
                  << wanted.batch.positions[rows[i]];
    }
  }
  return AssertionSuccess();
}

// A sequence with its blocks in the cache.
struct PlacedSequence {
  const KnownSequence* known = nullptr;
  std::vector<int32_t> block_table;
  std::vector<int32_t> node_slots;
};

PlacedSequence Place(const KnownSequence& known, BlockDealer& blocks, RandomValues& random) {
  PlacedSequence placed{.known = &known, .block_table = blocks.Deal(known.size())};
  for (const int32_t block : blocks.Deal(known.num_nodes())) {
    for (const int32_t slot : Iota(block * kBlock, kBlock)) placed.node_slots.push_back(slot);
  }
  Shuffle(placed.node_slots, random);
  placed.node_slots.resize(known.num_nodes());
  return placed;
}

void AppendChain(const PlacedSequence& placed, int32_t begin, int32_t end, ExpectedBatch& wanted) {
  const std::span<const int32_t> tokens = placed.known->tokens;
  AppendSegment(
      {.block_table = placed.block_table, .first_position = begin, .chain = tokens.subspan(begin, end - begin)},
      &wanted.batch);
  for (int32_t i = begin; i < end; ++i) wanted.expected.push_back(&placed.known->rows[i]);
}

// Appends the tokens from `begin` to the last, and these nodes below it (ascending; a parent before its children).
void AppendTree(const PlacedSequence& placed, int32_t begin, const std::vector<int32_t>& nodes, ExpectedBatch& wanted) {
  const KnownSequence& known = *placed.known;
  std::vector<int32_t> tokens, parents, slots, place_of(known.num_nodes(), -1);
  for (const int32_t node : nodes) {
    place_of[node] = static_cast<int32_t>(tokens.size());
    tokens.push_back(known.node_tokens[node]);
    parents.push_back(known.parents[node] < 0 ? -1 : place_of[known.parents[node]]);
    slots.push_back(placed.node_slots[node]);
  }
  AppendSegment({.block_table = placed.block_table,
                 .first_position = begin,
                 .chain = std::span(known.tokens).subspan(begin),
                 .tree_token_ids = tokens,
                 .tree_parents = parents,
                 .tree_slots = slots},
                &wanted.batch);
  for (int32_t i = begin; i < known.size(); ++i) wanted.expected.push_back(&known.rows[i]);
  for (const int32_t node : nodes) wanted.expected.push_back(&known.node_rows[node]);
}

// Returns about this part of the nodes, each with its ancestors.
std::vector<int32_t> SomeNodes(const KnownSequence& known, double part, RandomValues& random) {
  std::vector<bool> is_in(known.num_nodes());
  std::vector<int32_t> nodes;
  for (int32_t node = 0; node < known.num_nodes(); ++node) {
    const int32_t parent = known.parents[node];
    is_in[node] = (parent < 0 || is_in[parent]) && random.Coin(part);
    if (is_in[node]) nodes.push_back(node);
  }
  return nodes;
}

}  // namespace

AssertionResult CheckBatchSizes(LoadedModel& model, std::span<const int32_t> batch_sizes) {
  constexpr int32_t kNumSequences = 64;
  PoisonKv(model);
  RandomValues random(11);
  BlockDealer blocks(model, random);
  std::vector<KnownSequence> known(kNumSequences);
  std::vector<PlacedSequence> placed;
  for (int32_t i = 0; i < kNumSequences; ++i) {
    const int32_t num_tokens = i % 8 == 0 ? 65 + random.Below(80) : 1 + random.Below(40);
    known[i].tokens = RandomTokens(num_tokens, model.transformer->config().vocab_size, 100 + i);
    placed.push_back(Place(known[i], blocks, random));
    known[i].rows = DecodeChain(model, {.tokens = known[i].tokens, .block_table = placed[i].block_table});
  }
  std::vector<int32_t> order = Iota(0, kNumSequences);
  for (const int32_t batch_size : batch_sizes) {
    Shuffle(order, random);
    ExpectedBatch wanted;
    for (const int32_t i : std::span(order).first(batch_size)) {
      AppendChain(placed[i], known[i].size() - 1, known[i].size(), wanted);
    }
    if (AssertionResult same = RunAndCompare(model, wanted, random); !same) return same << ", batch of " << batch_size;
  }
  return AssertionSuccess();
}

AssertionResult CheckChunkSizes(LoadedModel& model, const KnownSequence& known, std::span<const int32_t> chunk_sizes) {
  const std::vector<int32_t> blocks = Iota(0, NumBlocks(known.size()));
  for (const int32_t size : chunk_sizes) {
    for (const int32_t block : blocks) PoisonBlock(model, block);
    const auto rows = DecodeChain(model, {.tokens = known.tokens, .block_table = blocks, .chunks = {size}});
    if (AssertionResult same = SameBits(rows, known.rows); !same) return same << ", chunks of " << size;
  }
  return AssertionSuccess();
}

AssertionResult CheckBlockLayouts(LoadedModel& model, const KnownSequence& known, int num_layouts) {
  RandomValues random(12);
  for (int i = 0; i < num_layouts; ++i) {
    PoisonKv(model);
    const std::vector<int32_t> blocks = BlockDealer(model, random).Deal(known.size());
    const std::vector<int32_t> chunks = RandomChunks(10, 80, random);
    const auto rows = DecodeChain(model, {.tokens = known.tokens, .block_table = blocks, .chunks = chunks});
    if (AssertionResult same = SameBits(rows, known.rows); !same) {
      return same << ", layout " << i << ", chunks of " << ::testing::PrintToString(chunks);
    }
  }
  return AssertionSuccess();
}

AssertionResult CheckTree(LoadedModel& model, const KnownSequence& known) {
  RandomValues random(13);
  const KnownSequence neighbour = DecodePlainly(model, {.num_tokens = 37, .parents = {}, .seed = 7});
  PoisonKv(model);
  BlockDealer blocks(model, random);
  const PlacedSequence placed = Place(known, blocks, random), placed_neighbour = Place(neighbour, blocks, random);
  const auto context = std::span(known.tokens).first(known.tokens.size() - 1);
  DecodeChain(model, {.tokens = context, .block_table = placed.block_table, .chunks = {64}});
  ExpectedBatch wanted;
  AppendChain(placed_neighbour, 0, neighbour.size(), wanted);
  AppendTree(placed, known.size() - 1, Iota(0, known.num_nodes()), wanted);
  return RunAndCompare(model, wanted, random);
}

AssertionResult CheckRandomTrees(LoadedModel& model, std::span<const int32_t> token_counts, int32_t num_nodes) {
  for (const int32_t num_tokens : token_counts) {
    const KnownSequence known =
        DecodePlainly(model, {.num_tokens = num_tokens, .parents = RandomParents(num_nodes, num_tokens), .seed = 3});
    if (AssertionResult same = CheckTree(model, known); !same) return same << ", a tree below " << num_tokens;
  }
  return AssertionSuccess();
}

AssertionResult CheckMixedBatches(LoadedModel& model, std::span<const KnownSequence> known, int num_batches) {
  constexpr int32_t kMaxChunk = 70;
  PoisonKv(model);
  RandomValues random(14);
  BlockDealer blocks(model, random);
  std::vector<PlacedSequence> placed;
  for (const KnownSequence& sequence : known) {
    placed.push_back(Place(sequence, blocks, random));
    DecodeChain(model, {.tokens = sequence.tokens, .block_table = placed.back().block_table, .chunks = {64}});
  }
  const int32_t max_rows = model.transformer->options().max_rows;
  for (int i = 0; i < num_batches; ++i) {
    Shuffle(placed, random);
    ExpectedBatch wanted;
    for (const PlacedSequence& sequence : placed) {
      const int32_t size = sequence.known->size(), chunk = 1 + random.Below(random.Coin(0.5) ? 1 : kMaxChunk);
      if (wanted.batch.num_rows() + chunk + sequence.known->num_nodes() > max_rows) break;
      if (random.Coin(0.2)) continue;
      if (random.Coin(0.5)) {
        AppendTree(sequence, std::max(0, size - chunk), SomeNodes(*sequence.known, random.Uniform(), random), wanted);
      } else {
        const int32_t end = 1 + random.Below(size);
        AppendChain(sequence, std::max(0, end - chunk), end, wanted);
      }
    }
    if (wanted.batch.num_rows() == 0) continue;
    if (AssertionResult same = RunAndCompare(model, wanted, random); !same) return same << ", batch " << i;
  }
  return AssertionSuccess();
}

namespace {

// A step with the root at `position`. Its tree has the sequence's own next tokens, each beside a wrong token.
struct SpeculativeStep {
  std::vector<int32_t> tokens, parents, slots;
  std::vector<int32_t> path;  // the right nodes
};

SpeculativeStep GuessAt(const KnownSequence& known, int32_t position, int32_t depth, RandomValues& random) {
  SpeculativeStep step;
  int32_t parent = -1;
  for (int32_t i = 1; i <= depth; ++i) {
    const int32_t right = random.Below(2), begin = static_cast<int32_t>(step.tokens.size());
    for (int32_t j = 0; j < 2; ++j) {
      const int32_t token = known.tokens[position + i];
      step.tokens.push_back(j == right ? token : (token + 1) % 100);
      step.parents.push_back(parent);
    }
    parent = begin + right;
    step.path.push_back(parent);
  }
  return step;
}

}  // namespace

AssertionResult CheckMovedRows(LoadedModel& model, const KnownSequence& known, TreeSlots tree_slots) {
  constexpr int32_t kMaxDepth = 6;
  PoisonKv(model);
  RandomValues random(15);
  BlockDealer blocks(model, random);
  // The table has extra room at the end for an overlapping tree.
  const std::vector<int32_t> table = blocks.Deal(known.size() + 2 * kMaxDepth);
  const std::vector<int32_t> scratch = blocks.Deal(2 * kMaxDepth);
  int32_t position = std::min(20, known.size() - 1);
  DecodeChain(model, {.tokens = std::span(known.tokens).first(position), .block_table = table, .chunks = {position}});
  while (position < known.size()) {
    SpeculativeStep step =
        GuessAt(known, position, std::min(random.Below(kMaxDepth + 1), known.size() - 1 - position), random);
    for (int32_t i = 0; i < static_cast<int32_t>(step.tokens.size()); ++i) {
      step.slots.push_back(tree_slots == TreeSlots::kApart ? model::SlotOf(scratch, i)
                                                           : model::SlotOf(table, position + 1 + i));
    }
    Shuffle(step.slots, random);
    model::ForwardBatch batch;
    AppendSegment({.block_table = table,
                   .first_position = position,
                   .chain = std::span(known.tokens).subspan(position, 1),
                   .tree_token_ids = step.tokens,
                   .tree_parents = step.parents,
                   .tree_slots = step.slots},
                  &batch);
    batch.logit_rows = {0};
    for (const int32_t node : step.path) batch.logit_rows.push_back(1 + node);
    const kernels::ConstTensorView logits = model.transformer->Forward(batch, model.kv);
    std::vector<kernels::KvMove> moves;
    for (size_t i = 0; i <= step.path.size(); ++i, ++position) {
      const Row row = RowOf(model, logits, static_cast<int64_t>(i));
      if (AssertionResult same = SameBits(row, known.rows[position]); !same) return same << ", position " << position;
      if (i < step.path.size()) {
        moves.push_back({.from_slot = step.slots[step.path[i]], .to_slot = model::SlotOf(table, position + 1)});
      }
    }
    model.transformer->MoveKv(model.kv, moves);
  }
  return AssertionSuccess();
}

AssertionResult CheckReusedBlocks(LoadedModel& model, std::span<const KnownSequence> known, int num_visits) {
  PoisonKv(model);
  RandomValues random(16);
  const int32_t longest = std::ranges::max(known, {}, &KnownSequence::size).size();
  // The pool is little larger than the longest sequence, so blocks of others are evicted often.
  model::BlockPool pool(NumBlocks(longest) + 3);
  int32_t num_found = 0;
  for (int visit = 0; visit < num_visits; ++visit) {
    const KnownSequence& sequence = known[random.Below(static_cast<int32_t>(known.size()))];
    model::BlockPool::Prefix prefix;
    // The last token is always computed.
    const auto findable = std::span(sequence.tokens).first(sequence.tokens.size() - 1);
    if (random.Coin(0.8)) prefix = pool.Find("", findable);
    const auto num_cached = static_cast<int32_t>(prefix.blocks.size()) * kBlock;
    num_found += num_cached;
    const int32_t end = num_cached + 1 + random.Below(sequence.size() - num_cached);
    while (static_cast<int32_t>(prefix.blocks.size()) < NumBlocks(end)) {
      prefix.blocks.push_back(pool.Allocate(model::Evict::kYes).value());
      PoisonBlock(model, prefix.blocks.back());
    }
    const auto rows = DecodeChain(model, {.tokens = std::span(sequence.tokens).subspan(num_cached, end - num_cached),
                                          .first_position = num_cached,
                                          .block_table = prefix.blocks,
                                          .chunks = RandomChunks(10, 40, random)});
    const auto expected = std::span(sequence.rows).subspan(num_cached, end - num_cached);
    if (AssertionResult same = SameBits(rows, expected); !same) {
      return same << " behind " << num_cached << " cached tokens, visit " << visit;
    }
    for (int32_t begin = num_cached; begin + kBlock <= end; begin += kBlock) {
      const model::BlockTokens tokens(sequence.tokens.data() + begin, kBlock);
      prefix.last = pool.Insert("", prefix.last, tokens, prefix.blocks[begin / kBlock]);
    }
    while (!prefix.blocks.empty()) {
      pool.Release(prefix.blocks.back());
      prefix.blocks.pop_back();
    }
  }
  if (num_found == 0) return AssertionFailure() << "no visit found cached blocks";
  return AssertionSuccess();
}

}  // namespace foretoken::testing
