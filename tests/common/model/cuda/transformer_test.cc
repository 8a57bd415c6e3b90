// SPDX-License-Identifier: Apache-2.0
// The transformer on the CUDA backend: against the double-precision reference, row invariant (E1), and equal with
// recorded passes and without. It runs on a GPU, and everywhere on an emulated one. If this test fails, a GPU server
// emits wrong tokens, or tokens that depend on other requests.
#include "common/model/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mapped_file.h"
#include "kernels/cuda/cuda_backend.h"
#include "nlohmann/json.hpp"
#include "tests/kernels/cuda/played_library.h"
#include "tests/reference/transformer.h"
#include "tests/testing/fakes/forwarding_backend.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/known_sequence.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/quantized_twins.h"
#include "tests/testing/models/row_invariance.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using nlohmann::json;
using testing::CheckMovedRows;
using testing::DecodeChain;
using testing::DecodePlainly;
using testing::Iota;
using testing::KnownSequence;
using testing::LoadedModel;
using testing::RandomParents;
using testing::SourcePath;
using testing::TreeSlots;

// Has no recorder: every pass is enqueued op by op.
class UnrecordedBackend final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
};

// Counts the calls of one op, which shows the passes that are enqueued op by op.
class CountingBackend final : public testing::ForwardingBackend {
 public:
  CountingBackend(std::unique_ptr<kernels::Backend> backend, int* num_embeds)
      : ForwardingBackend(std::move(backend)), num_embeds_(num_embeds) {}

  void Embed(const kernels::EmbedArgs& args) override {
    ++*num_embeds_;
    ForwardingBackend::Embed(args);
  }
  kernels::Recorder* recorder() override { return backend().recorder(); }

 private:
  int* num_embeds_;
};

// Records the number of segments of each pass that is enqueued op by op.
class SegmentCounter final : public testing::ForwardingBackend {
 public:
  SegmentCounter(std::unique_ptr<kernels::Backend> backend, std::set<int32_t>* counts)
      : ForwardingBackend(std::move(backend)), counts_(counts) {}

  void Attention(const kernels::AttentionArgs& args) override {
    counts_->insert(args.batch.num_segments);
    ForwardingBackend::Attention(args);
  }
  kernels::Recorder* recorder() override { return backend().recorder(); }

 private:
  std::set<int32_t>* counts_;
};

using Wrap = std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)>;

class CudaTransformer : public ::testing::Test {
 protected:
  void SetUp() override {
    const kernels::MadeBackend made = kernels::cuda::MakeBackend({.device = "cuda"});
    if (made.backend == nullptr) GTEST_SKIP() << made.error;
  }

  static LoadedModel Load(const Wrap& wrap = nullptr, const std::string& name = "mistral-window") {
    return testing::LoadModel(SourcePath("tests/cases/models/") + name,
                              {.num_blocks = testing::kExactBlocks,
                               .device = "cuda",
                               .make_backend = kernels::cuda::MakeBackend,
                               .wrap_backend = wrap,
                               .transformer = {.max_rows = 96, .max_logit_rows = 96, .max_positions = 256}});
  }
  static LoadedModel LoadFrom(const std::string& directory, const kernels::QuantizationOptions& quantization) {
    return testing::LoadModel(directory, {.num_blocks = testing::kExactBlocks,
                                          .device = "cuda",
                                          .make_backend =
                                              [quantization](kernels::BackendOptions options) {
                                                options.quantization = quantization;
                                                return kernels::cuda::MakeBackend(options);
                                              },
                                          .transformer = {.max_rows = 96, .max_logit_rows = 96, .max_positions = 256}});
  }
  static LoadedModel LoadFp8() { return LoadFrom(SourcePath("tests/cases/models/mistral-window"), {.weights = "fp8"}); }
  // Loads with a cuBLASLt that is always faster, from a row count on whose passes would be recorded.
  static LoadedModel LoadServed() {
    return testing::LoadModel(SourcePath("tests/cases/models/qwen3"),
                              {.num_blocks = testing::kExactBlocks,
                               .device = "cuda",
                               .make_backend =
                                   [](const kernels::BackendOptions& options) {
                                     return kernels::cuda::MakeBackendWithLibrary(
                                         options, kernels::cuda::LibraryPlayed({.min_rows = 32}));
                                   },
                               .wrap_backend = Unrecorded,
                               .transformer = {.max_rows = 48, .max_logit_rows = 48, .max_positions = 256}});
  }
  static std::unique_ptr<kernels::Backend> Unrecorded(std::unique_ptr<kernels::Backend> backend) {
    return std::make_unique<UnrecordedBackend>(std::move(backend));
  }
};

class CudaTransformerOf : public CudaTransformer, public ::testing::WithParamInterface<const char*> {};

// The tolerance is the CPU backends' own (tests/common/model/transformer_test.cc), because the contract fixes the
// roundings of both.
TEST_P(CudaTransformerOf, ReproducesTheReference) {
  const std::string directory = SourcePath("tests/cases/models/") + GetParam();
  const auto reference = reference::Transformer::Load(directory, reference::Rounding::kBf16);
  ASSERT_TRUE(reference.ok()) << reference.status();
  LoadedModel model = Load(nullptr, GetParam());
  const json reference_case = json::parse(base::ReadFile(directory + "/reference.json").value())["cases"][1];
  const auto tokens = reference_case["token_ids"].get<std::vector<int32_t>>();
  const auto positions = reference_case["positions"].get<std::vector<size_t>>();
  const auto rows = DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {40}});
  const auto expected = reference->Logits(std::vector<int64_t>(tokens.begin(), tokens.end()), positions);
  for (size_t i = 0; i < positions.size(); ++i) {
    for (size_t v = 0; v < expected[i].size(); ++v) {
      ASSERT_NEAR(rows[positions[i]][v], expected[i][v], 3e-2) << "position " << positions[i] << " token " << v;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaTransformerOf,
                         ::testing::Values("llama-linear-bias", "mistral-window", "qwen3", "olmo2-bias", "mixtral",
                                           "qwen3-moe", "gpt-oss", "glm4-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Rows of a pass that was enqueued op by op equal those of every recorded pass: chunks and trees, padded or not.
TEST_F(CudaTransformer, RecordedPassesEqualEnqueuedPasses) {
  for (const char* name : {"mistral-window", "mixtral"}) {
    LoadedModel enqueued = Load(Unrecorded, name);
    const std::vector<KnownSequence> known = {
        DecodePlainly(enqueued, {.num_tokens = 24, .parents = RandomParents(6, 1), .seed = 1}),
        DecodePlainly(enqueued, {.num_tokens = 17, .parents = RandomParents(9, 2), .seed = 2}),
        DecodePlainly(enqueued, {.num_tokens = 21, .seed = 3})};
    LoadedModel recorded = Load(nullptr, name);
    EXPECT_TRUE(CheckMixedBatches(recorded, known, 5)) << name;
    EXPECT_TRUE(CheckChunkSizes(recorded, known[0], std::vector<int32_t>{3, 7, 16})) << name;
  }
}

TEST_F(CudaTransformer, IsRowInvariant) {
  for (const char* name : {"mistral-window", "gpt-oss", "glm4-moe"}) {
    LoadedModel model = Load(nullptr, name);
    const KnownSequence known = DecodePlainly(model, {.num_tokens = 36, .parents = RandomParents(12, 4), .seed = 4});
    EXPECT_TRUE(CheckTree(model, known)) << name;
    EXPECT_TRUE(CheckBlockLayouts(model, known, 1)) << name;
    EXPECT_TRUE(CheckMovedRows(model, known, TreeSlots::kOverlapping)) << name;
  }
}

// Passes of 32 rows and more: the library may compute their products.
TEST_F(CudaTransformer, RowsAreTheSameWithLibraryProducts) {
  const auto decode = [](LoadedModel& model, const std::vector<int32_t>& chunks) {
    const std::vector<int32_t> tokens = testing::RandomTokens(40, model.transformer->config().vocab_size, 1);
    return DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = chunks});
  };
  LoadedModel plain = Load(Unrecorded, "qwen3");
  const auto expected = decode(plain, {8});
  const bool is_played = kernels::cuda::PlayAlgorithms({{}});
  LoadedModel served = LoadServed();
  EXPECT_EQ(decode(served, {40}), expected);
  if (!is_played) return;
  EXPECT_EQ(served.transformer->product_tuning(),
            "cuBLASLt: 256 x 64: 32 rows served; 64 x 128: 32 rows served; 192 x 64: 32 rows served; 304 x 64: 32 rows "
            "served");
  kernels::cuda::PlayAlgorithms({{.wrong_row = 3}});
  EXPECT_NE(decode(served, {40}), expected) << "the library is not asked";
  LoadedModel unserved = LoadServed();
  EXPECT_EQ(decode(unserved, {40}), expected);
}

// A decode step's host work is one launch: from the third pass of a row count on, no op is called.
TEST_F(CudaTransformer, RecordsAPassOfEachRowCountOnce) {
  int num_embeds = 0;
  LoadedModel model = Load([&](std::unique_ptr<kernels::Backend> backend) {
    return std::make_unique<CountingBackend>(std::move(backend), &num_embeds);
  });
  const std::vector<int32_t> tokens = testing::RandomTokens(60, model.transformer->config().vocab_size, 1);
  const auto decode = [&](std::vector<int32_t> chunks) {
    const int before = num_embeds;
    DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = std::move(chunks)});
    return num_embeds - before;
  };
  EXPECT_EQ(decode({20}), 2);  // enqueued, recorded, replayed
  EXPECT_EQ(decode({20}), 0);
  EXPECT_EQ(decode({17, 24, 19}), 0);  // the same row count for a recording
  EXPECT_EQ(decode({7}), 3);           // eight passes of 8 rows, and the last one of 4
}

// A recording writes the states that it captured, whose memory is freed with the last drafter that read them.
TEST_F(CudaTransformer, ForgetsPassesThatCapturedOtherLayers) {
  int num_embeds = 0;
  LoadedModel model = Load([&](std::unique_ptr<kernels::Backend> backend) {
    return std::make_unique<CountingBackend>(std::move(backend), &num_embeds);
  });
  const std::vector<int32_t> tokens = testing::RandomTokens(60, model.transformer->config().vocab_size, 1);
  const auto decode = [&](std::vector<int32_t> captured) {
    model.transformer->Capture(captured);
    const int before = num_embeds;
    DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {20}});
    return num_embeds - before;
  };
  EXPECT_EQ(decode({1, 2}), 2);
  EXPECT_EQ(decode({1, 2}), 0);
  EXPECT_EQ(decode({2}), 2);
  EXPECT_EQ(decode({1, 2}), 2) << "the first recordings are gone";
}

// The second of two ranks, which gets nothing from the first.
class DeafCommunicator final : public kernels::Communicator {
 public:
  int rank() const override { return 1; }
  int num_ranks() const override { return 2; }
  bool is_recordable() const override { return true; }
  void AllGather(void* /*pieces*/, size_t /*num_bytes*/) override {}
  void GatherToFirst(void* /*pieces*/, size_t /*num_bytes*/) override {}
};

// NCCL records an operation on all ranks or on none. So a rank that keeps no captured states records its passes anew
// with rank 0, which keeps them.
TEST_F(CudaTransformer, ALaterRankForgetsItsPassesWithTheFirst) {
  int num_embeds = 0;
  CountingBackend backend(kernels::cuda::MakeBackend({.device = "cuda"}).backend, &num_embeds);
  DeafCommunicator communicator;
  const std::string directory = SourcePath("tests/cases/models/mistral-window");
  const ModelConfig config = LoadModelConfig(directory).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  WeightReader reader({});
  TransformerRank rank(config, LoadWeights(config, checkpoint, backend, reader, {.rank = 1, .num_ranks = 2}).value(),
                       {.backend = &backend, .communicator = &communicator},
                       {.max_rows = 96, .max_logit_rows = 96, .max_positions = 256});
  kernels::KvCacheView kv = rank.KvShape(16);
  const kernels::Buffer memory = backend.Allocate(kv.num_bytes());
  kv.data = memory.get();
  const std::vector<int32_t> block_table = Iota(0, 16), chain = testing::RandomTokens(20, config.vocab_size, 1);
  const auto num_enqueued = [&](std::vector<int32_t> captured) {
    rank.Capture(captured);
    const int before = num_embeds;
    for (int pass = 0; pass < 3; ++pass) {
      ForwardBatch batch;
      AppendSegment({.block_table = block_table, .chain = chain}, &batch);
      batch.logit_rows = {19};
      rank.Forward(batch, kv);
      backend.Synchronize();
    }
    return num_embeds - before;
  };
  EXPECT_EQ(num_enqueued({}), 2);
  EXPECT_EQ(num_enqueued({}), 0);
  EXPECT_EQ(num_enqueued({1}), 2);
  EXPECT_EQ(num_enqueued({}), 2) << "the first recordings are gone";
}

// Attention launches blocks for every segment that a recording has space for.
TEST_F(CudaTransformer, RecordsASingleSequenceWithFewSpareSegments) {
  std::set<int32_t> counts;
  LoadedModel model = Load([&](std::unique_ptr<kernels::Backend> backend) {
    return std::make_unique<SegmentCounter>(std::move(backend), &counts);
  });
  const std::vector<int32_t> tokens = testing::RandomTokens(64, model.transformer->config().vocab_size, 1);
  DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {64}});
  DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {60}});
  EXPECT_EQ(counts, std::set<int32_t>{2});
}

// The sum of the squared differences, divided by the sum of the exact logits' squares.
double SquaresApart(const std::vector<float>& exact, const std::vector<float>& rounded) {
  double squares = 0, differences = 0;
  for (size_t v = 0; v < exact.size(); ++v) {
    squares += exact[v] * exact[v];
    differences += (exact[v] - rounded[v]) * (exact[v] - rounded[v]);
  }
  return differences / squares;
}

// Each side of an e4m3 product has an average error of a 32nd of itself; logits have size 1, and zeros would be logits
// of another size.
TEST_F(CudaTransformer, WithFp8IsNearBf16AndRowInvariant) {
  LoadedModel bf16 = Load(), fp8 = LoadFp8();
  EXPECT_EQ(fp8.backend().Describe(), bf16.backend().Describe() + " fp8");
  const std::vector<int32_t> tokens = testing::RandomTokens(20, bf16.transformer->config().vocab_size, 1);
  const auto decode = [&](LoadedModel& model) {
    return DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {20}}).back();
  };
  const double apart = SquaresApart(decode(bf16), decode(fp8));
  EXPECT_LT(apart, 0.04);
  EXPECT_GT(apart, 0);
  const KnownSequence known = DecodePlainly(fp8, {.num_tokens = 18, .parents = RandomParents(8, 4), .seed = 4});
  EXPECT_TRUE(CheckTree(fp8, known));
}

// The weights stay integers and have the bits of bf16 all the same. Only formats with offsets may differ by a rounding.
TEST_F(CudaTransformer, AStoredCheckpointOfIntegersHasTheLogitsOfItsValues) {
  int num_kept = 0;
  for (const testing::QuantizedFormat& format : testing::QuantizedFormats()) {
    if (!format.has_groups) continue;  // becomes bf16
    ++num_kept;
    const testing::QuantizedTwins twins(format);
    LoadedModel plain = LoadFrom(twins.plain.path(), {}), integers = LoadFrom(twins.quantized.path(), {});
    const std::vector<int32_t> tokens = testing::RandomTokens(20, plain.transformer->config().vocab_size, 1);
    const auto decode = [&](LoadedModel& model) {
      return DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {20}}).back();
    };
    const auto expected = decode(plain), logits = decode(integers);
    if (format.name.find("zeros") == std::string::npos && format.name != "awq") {
      EXPECT_EQ(logits, expected) << format.name;
      continue;
    }
    for (size_t v = 0; v < logits.size(); ++v) ASSERT_NEAR(logits[v], expected[v], 0.05) << format.name;
  }
  EXPECT_GE(num_kept, 5);
}

TEST_F(CudaTransformer, RoundsToIntegersAtLoadAndStaysRowInvariant) {
  for (const char* weights : {"int8", "int4"}) {
    LoadedModel model = LoadFrom(SourcePath("tests/cases/models/mistral-window"),
                                 {.weights = weights, .head = "int8", .group_size = 64});
    EXPECT_THAT(model.backend().Describe(),
                ::testing::EndsWith(std::string(weights) == "int8" ? " w8a16-g64 head w8a16-g64"
                                                                   : " w4a16-g64 head w8a16-g64"));
    const KnownSequence known = DecodePlainly(model, {.num_tokens = 18, .parents = RandomParents(8, 4), .seed = 4});
    EXPECT_TRUE(CheckTree(model, known));
  }
}

// An element of int8 is off by at most a 254th of its head's largest, one of e4m3 by at most a 16th of itself.
TEST_F(CudaTransformer, KeepsKAndVIn8BitsAndStaysRowInvariant) {
  const std::string directory = SourcePath("tests/cases/models/mistral-window");
  LoadedModel plain = LoadFrom(directory, {});
  const std::vector<int32_t> tokens = testing::RandomTokens(20, plain.transformer->config().vocab_size, 1);
  const auto decode = [&](LoadedModel& model) {
    return DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {7, 13}}).back();
  };
  const auto exact = decode(plain);
  for (const std::string kv_cache : {"int8", "fp8"}) {
    LoadedModel model = LoadFrom(directory, {.kv_cache = kv_cache});
    EXPECT_THAT(model.backend().Describe(), ::testing::EndsWith(" kv-" + kv_cache));
    const double apart = SquaresApart(exact, decode(model));
    EXPECT_LT(apart, kv_cache == "int8" ? 0.0005 : 0.005);
    EXPECT_GT(apart, 0);
    const KnownSequence known = DecodePlainly(model, {.num_tokens = 18, .parents = RandomParents(8, 4), .seed = 4});
    EXPECT_TRUE(CheckTree(model, known));
  }
}

}  // namespace
}  // namespace foretoken::model
