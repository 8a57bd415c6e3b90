// SPDX-License-Identifier: Apache-2.0
// A verifier and a draft proposer whose experts do not fit into the memory that they may take. If this test fails,
// --expert_memory_mb changes tokens or the numerics fingerprint, takes more memory than it says, or is not counted.
#include <filesystem>
#include <optional>

#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

constexpr double kMiB = 1 << 20;

// A model with 24 experts of 192 KiB each, and the demo's tokenizer.
class ExpertMemoryOfServices : public ::testing::Test {
 protected:
  ExpertMemoryOfServices() {
    directory_.CopyFrom(testing::RandomCheckpoint("qwen3_moe").directory());
    std::filesystem::copy(testing::SourcePath("deploy/demo/target/tokenizer.json"), directory_.path());
  }

  struct Served {
    std::vector<std::vector<uint32_t>> tokens;
    std::string fingerprint;
    double num_loads = 0;
    double num_bytes = 0;
    std::optional<double> num_draft_loads, num_draft_bytes;  // set where a draft model is embedded
  };
  Served Serve(std::vector<std::string> flags) { return Serve(directory_.path(), std::move(flags)); }
  static Served Serve(const std::string& model, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model=" + model, "--threads=2", "--kv_cache_mb=16"});
    const ServiceProcess verifier("foretoken_verifier", flags);
    client::GenerationClient client = Connect(verifier);
    Served served = {.fingerprint = client.GetModelInfo()->numerics_fingerprint()};
    for (int i = 0; i < 3; ++i) {
      const absl::StatusOr<client::Generation> generation = client.Generate(RepetitiveRequest(i));
      EXPECT_TRUE(generation.ok()) << generation.status();
      if (generation.ok()) served.tokens.push_back(generation->samples[0].token_ids);
    }
    const auto metrics = verifier.Metrics();
    served.num_loads = metrics.at("foretoken_expert_loads_total");
    served.num_bytes = metrics.at("foretoken_expert_bytes");
    if (metrics.contains("foretoken_draft_expert_loads_total")) {
      served.num_draft_loads = metrics.at("foretoken_draft_expert_loads_total");
      served.num_draft_bytes = metrics.at("foretoken_draft_expert_bytes");
    }
    return served;
  }

  const testing::TempDir directory_;
};

TEST_F(ExpertMemoryOfServices, ChangesNoTokenAndIsCounted) {
  for (const std::string ranks : {"--tensor_parallel=1", "--tensor_parallel=2"}) {
    const Served all = Serve({ranks});
    EXPECT_EQ(all.num_loads, 0);
    EXPECT_EQ(all.num_bytes, 4.5 * kMiB);
    const Served some = Serve({ranks, "--expert_memory_mb=1",
                               "--proposer=draft,embedded,threads=1,expert_memory_mb=1,model=" + directory_.path()});
    EXPECT_EQ(some.tokens, all.tokens);
    EXPECT_EQ(some.fingerprint, all.fingerprint);
    EXPECT_GT(some.num_loads, 5);
    EXPECT_LE(some.num_bytes, kMiB);
    EXPECT_GE(some.num_bytes, 0.75 * kMiB);
    EXPECT_GT(some.num_draft_loads, 5);
    EXPECT_LE(some.num_draft_bytes, kMiB);
    EXPECT_GE(some.num_draft_bytes, 0.75 * kMiB);
    const Served enough = Serve({ranks, "--expert_memory_mb=5"});
    EXPECT_EQ(enough.tokens, all.tokens);
    EXPECT_EQ(enough.num_loads, 0);
    EXPECT_EQ(enough.num_bytes, all.num_bytes);
  }
}

TEST_F(ExpertMemoryOfServices, HoldsForAGgufFile) {
  const std::string gguf =
      directory_.Write("model.gguf", testing::GgufTwin(directory_.path(), {.encode = testing::InBf16}).Bytes());
  const Served all = Serve({});
  const Served some = Serve(gguf, {"--expert_memory_mb=1"});
  EXPECT_EQ(some.tokens, all.tokens);
  EXPECT_GT(some.num_loads, 5);
  EXPECT_LE(some.num_bytes, kMiB);
}

}  // namespace
}  // namespace foretoken
