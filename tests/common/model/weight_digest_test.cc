// SPDX-License-Identifier: Apache-2.0
// The digest of a model's weights. If this test fails, two servers of one model have different fingerprints, or two
// models have the same.
#include "common/model/weight_digest.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/base/mapped_file.h"
#include "common/model/model_weights.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::model {
namespace {

std::string DigestOf(const std::string& directory, const testing::LoadOptions& options = {}) {
  const ModelConfig config = LoadModelConfig(directory).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  WeightDigest digest = WeightDigest::Make(config, checkpoint).value();
  WeightReader reader({.digest = &digest});
  const std::unique_ptr<parallel::RankGroup> ranks = testing::MakeRanks(options);
  ranks->Run([&](int rank) {
    const Shard shard = {.rank = rank, .num_ranks = options.num_ranks};
    EXPECT_TRUE(LoadWeights(config, checkpoint, ranks->backend(rank), reader, shard).ok());
  });
  EXPECT_EQ(reader.times().num_bytes, checkpoint.num_bytes());
  return digest.Finish();
}

TEST(WeightDigest, DependsOnNoThreadsAndNoRanks) {
  for (const char* name : testing::kRandomCheckpoints) {
    const testing::RandomCheckpoint files(name);
    const std::string digest = DigestOf(files.directory(), {.num_threads = 1});
    EXPECT_EQ(digest.size(), 32u);
    for (const int num_threads : {2, 7}) EXPECT_EQ(DigestOf(files.directory(), {.num_threads = num_threads}), digest);
    for (const int num_ranks : {2, 4}) EXPECT_EQ(DigestOf(files.directory(), {.num_ranks = num_ranks}), digest);
  }
}

TEST(WeightDigest, ChangesWithEveryTensorsBits) {
  const testing::RandomCheckpoint files("llama");
  const testing::TempDir dir;
  dir.CopyFrom(files.directory());
  std::set<std::string> digests = {DigestOf(dir.path())};
  const std::string content = base::ReadFile(dir.path() + "/model.safetensors").value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(files.directory()).value();
  const weights::SafetensorsFile file =
      weights::SafetensorsFile::Open(files.directory() + "/model.safetensors").value();
  const std::byte* first = nullptr;
  for (const auto& [name, tensor] : file.tensors()) {
    if (first == nullptr || tensor.bytes.data() < first) first = tensor.bytes.data();
  }
  const size_t data_begin = content.size() - checkpoint.num_bytes();
  for (const auto& [name, tensor] : file.tensors()) {
    std::string changed = content;
    changed[data_begin + (tensor.bytes.data() - first) + tensor.bytes.size() / 2] ^= 1;
    dir.Write("model.safetensors", changed);
    EXPECT_TRUE(digests.insert(DigestOf(dir.path())).second) << name;
  }
}

}  // namespace
}  // namespace foretoken::model
