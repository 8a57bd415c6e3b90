// SPDX-License-Identifier: Apache-2.0
// The parts of a numerics fingerprint, and the bits behind it. If this test fails, two servers may show the same
// fingerprint and still give different tokens, or a change has moved bits without raising kNumericsVersion.
#include "verifier_service/numerics_fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/mapped_file.h"
#include "common/base/sha256.h"
#include "common/base/version.h"
#include "common/model/weight_digest.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::verifier {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int32_t kEndTokenIds[] = {2, 5};

NumericsDescriptionArgs Arguments() {
  return {.backend = "cpu/some highway-1/SOME", .num_tokens = 300, .vocabulary = "a b", .end_token_ids = kEndTokenIds};
}

std::string FingerprintOf(const std::string& directory, const NumericsDescriptionArgs& args = Arguments()) {
  const model::ModelConfig config = model::LoadModelConfig(directory).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  model::WeightDigest digest = model::WeightDigest::Make(config, checkpoint).value();
  model::WeightReader reader({.digest = &digest});
  const kernels::MadeBackend made = kernels::MakeBackend({.num_threads = 2});
  EXPECT_TRUE(model::LoadWeights(config, checkpoint, *made.backend, reader).ok());
  return ComputeNumericsFingerprint(DescribeNumerics(args), base::ReadFile(directory + "/config.json").value(),
                                    digest.Finish());
}

TEST(NumericsFingerprint, NamesEverythingThatDecidesBits) {
  const std::string text = FingerprintOf(testing::SourcePath("tests/cases/models/llama"));
  EXPECT_TRUE(absl::StartsWith(text, absl::StrCat("foretoken-", base::Version(), " numerics-", kNumericsVersion, " ",
                                                  base::Toolchain(), " cpu/some highway-1/SOME ")));
  EXPECT_THAT(text, ContainsRegex(" tp1 bf16 ids-300/[0-9a-f]+ weights-[0-9a-f]+$"));
#ifdef __GLIBC__
  EXPECT_THAT(text, ContainsRegex(" glibc-2\\.[0-9]+"));
#endif
  // Compiler, its version, and a digest of its flags.
  EXPECT_THAT(base::Toolchain(), ContainsRegex("^[a-z]+-[0-9]+\\.[0-9.]+-[0-9a-f]+$"));
}

TEST(NumericsFingerprint, ChangesWithTheIdsThatADrawMayTake) {
  const std::string before = DescribeNumerics(Arguments());
  NumericsDescriptionArgs args = Arguments();
  args.num_tokens = 301;
  EXPECT_NE(DescribeNumerics(args), before);
  args = Arguments();
  args.vocabulary = "a c";
  EXPECT_NE(DescribeNumerics(args), before);
  // A draw excludes these ids before min_tokens.
  args = Arguments();
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>{2}, {2, 6}, {2, 5, 6}, {}}) {
    args.end_token_ids = ids;
    EXPECT_NE(DescribeNumerics(args), before);
  }
  const std::vector<int32_t> same = {5, 2, 5};
  args.end_token_ids = same;
  EXPECT_EQ(DescribeNumerics(args), before);
}

TEST(NumericsFingerprint, ChangesWithABitOfAWeightAndWithTheConfigAndTheBackend) {
  const testing::TempDir dir;
  dir.CopyFrom(testing::SourcePath("tests/cases/models/llama"));
  const std::string before = FingerprintOf(dir.path());
  EXPECT_EQ(FingerprintOf(dir.path()), before);
  NumericsDescriptionArgs args = Arguments();
  args.backend = "cpu/other highway-1/SOME";
  EXPECT_NE(FingerprintOf(dir.path(), args), before);
  args = Arguments();
  args.tensor_parallel = 2;
  EXPECT_THAT(FingerprintOf(dir.path(), args), HasSubstr(" tp2 bf16 "));
  args.takes_long_divisors = true;
  EXPECT_THAT(FingerprintOf(dir.path(), args), HasSubstr(" tp2 bf16 rope-long "));

  dir.Write("README.md", "of no consequence");
  EXPECT_EQ(FingerprintOf(dir.path()), before);

  std::string weights = base::ReadFile(dir.path() + "/model.safetensors").value();
  weights.back() ^= 1;
  dir.Write("model.safetensors", weights);
  EXPECT_NE(FingerprintOf(dir.path()), before);
  weights.back() ^= 1;
  dir.Write("model.safetensors", weights);
  EXPECT_EQ(FingerprintOf(dir.path()), before);

  // Every byte of config.json counts.
  dir.Write("config.json", base::ReadFile(dir.path() + "/config.json").value() + "\n");
  EXPECT_NE(FingerprintOf(dir.path()), before);
}

// Adds the tokens of every row to the digest, under parameters that take every path of a draw.
void UpdateWithDraws(kernels::Backend& backend, const kernels::ConstTensorView& logits, int32_t num_tokens,
                     base::Sha256& hash) {
  const std::vector<kernels::SamplingParams> samplings = {
      {.temperature = 0},
      {.seed = 1},
      {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .seed = 2},
      {.temperature = 1.3f, .min_p = 0.1f, .repetition_penalty = 1.2f, .frequency_penalty = 0.3f, .seed = 3}};
  const std::vector<int32_t> token_ids = {0}, parents = {-1};
  const std::vector<kernels::TokenCount> counts = {{1, 2}, {5, 0}};
  const std::vector<uint32_t> mask(static_cast<size_t>(num_tokens + 31) / 32, 0xfffefeff);
  const std::vector<const uint32_t*> masks = {mask.data()};
  std::vector<kernels::TreeToAccept> trees;
  for (int32_t row = 0; row < logits.shape[0]; ++row) {
    for (const kernels::SamplingParams& sampling : samplings) {
      trees.push_back({.first_logit_row = row,
                       .token_ids = token_ids,
                       .parents = parents,
                       .context_len = static_cast<uint32_t>(row),
                       .sampling = sampling,
                       .counts = counts,
                       .masks = masks,
                       .num_top_logprobs = 2});
    }
  }
  std::vector<kernels::AcceptedPath> paths(trees.size());
  backend.AcceptTrees({.logits = logits, .num_tokens = num_tokens, .trees = trees, .paths = paths});
  for (const kernels::AcceptedPath& path : paths) {
    hash.UpdateInteger(static_cast<uint64_t>(path.token_ids.at(0)));
    const float logprob = path.logprobs.at(0).token.logprob;
    hash.Update(absl::string_view(reinterpret_cast<const char*>(&logprob), sizeof(logprob)));
  }
}

// Models whose digests stand in a line together. A line of an instruction set that is not at hand stays when models
// come: they belong to the next group.
struct ModelGroup {
  std::string name;  // of the line; the first has none
  std::vector<std::string> directories;
};

// Every tiny model and the demo model. The demo model is large enough for an ulp in a sum to change some bf16 value.
std::vector<ModelGroup> ModelGroups() {
  constexpr size_t kNumFirst = 26;
  std::vector<ModelGroup> groups = {{.name = "", .directories = {"deploy/demo/target"}}, {.name = "later "}};
  for (size_t i = 0; i < std::size(testing::kTinyModels); ++i) {
    groups[i < kNumFirst ? 0 : 1].directories.push_back(std::string("tests/cases/models/") + testing::kTinyModels[i]);
  }
  return groups;
}

// Returns a digest of the logits of 200 positions and of draws from them.
std::string DigestOfBits(const std::string& isa, std::span<const std::string> directories) {
  base::Sha256 hash;
  for (const std::string& directory : directories) {
    testing::LoadedModel loaded = testing::LoadModel(testing::SourcePath(directory), {.num_threads = 2, .isa = isa});
    const auto vocab_size = static_cast<int32_t>(loaded.transformer->config().vocab_size);
    std::vector<int32_t> tokens(200), blocks(13);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i * 7 + i) % vocab_size;
    std::iota(blocks.begin(), blocks.end(), 0);
    model::ForwardBatch batch;
    model::AppendSegment({.block_table = blocks, .first_position = 0, .chain = tokens}, &batch);
    batch.logit_rows.resize(tokens.size());
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
    const kernels::ConstTensorView logits = loaded.transformer->Forward(batch, loaded.kv);
    hash.Update(absl::string_view(static_cast<const char*>(logits.data), logits.num_bytes()));
    UpdateWithDraws(loaded.backend(), logits, vocab_size, hash);
  }
  const base::Sha256Digest digest = hash.Finish();
  return base::ToHex(std::span(digest).first(8));
}

TEST(NumericsVersion, IsRaisedWhenBitsMove) {
  std::map<std::string, std::string> digests;  // by backend
  std::ifstream file(testing::SourcePath("tests/cases/numerics.txt"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> parts = absl::StrSplit(line, " = ");
    ASSERT_EQ(parts.size(), 2) << line;
    digests[parts[0]] = parts[1];
  }
  for (const std::string& isa : kernels::SupportedCpuIsas()) {
    const std::string backend = kernels::MakeBackend({.num_threads = 1, .isa = isa}).backend->Describe();
    for (const ModelGroup& group : ModelGroups()) {
      const std::string key = absl::StrCat("numerics-", kNumericsVersion, " ", group.name, backend);
      const std::string digest = DigestOfBits(isa, group.directories);
      const auto known = digests.find(key);
      if (known == digests.end()) {
        std::printf("tests/cases/numerics.txt knows nothing of: %s = %s\n", key.c_str(), digest.c_str());
        continue;
      }
      EXPECT_EQ(digest, known->second) << key << ": bits have moved. Raise kNumericsVersion and write the new digests.";
    }
  }
}

}  // namespace
}  // namespace foretoken::verifier
