// SPDX-License-Identifier: Apache-2.0
// What a model costs in memory: this process's share (Pss) while it loads a checkpoint from a file, and after.
//
//   memory_bench [--json]
//
// The checkpoint, of a Llama's shape with random weights, is written to a temporary directory first. K/V pages that no
// token has touched yet cost nothing, so what is held against the bound is all that is not weights.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/model/weight_names.h"
#include "kernels/check.h"
#include "tests/bench/findings.h"
#include "tests/testing/loaded_model.h"
#include "tests/testing/random_values.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(bool, short, false, "changes nothing: it is short");
ABSL_FLAG(bool, json, false, "print JSON");

namespace foretoken::bench {
namespace {

constexpr double kMegabyte = 1e6;
constexpr int32_t kNumBlocks = 256;

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
  "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12, "num_attention_heads": 16,
  "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "max_position_embeddings": 4096, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})";

// In bytes.
double Pss() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return 1024 * std::stod(line.substr(4));
  }
  FT_CHECK(false);
}

void WriteCheckpoint(const testing::TempDir& directory) {
  directory.Write("config.json", kConfig);
  const model::ModelConfig config = model::LoadModelConfig(directory.path()).value();
  nlohmann::json header;
  size_t num_bytes = 0;
  for (const model::WeightName& name : model::ListWeights(model::NameWeights(config))) {
    const size_t end = num_bytes + 2 * static_cast<size_t>(name.shape.num_elements());
    std::vector<int64_t> shape(name.shape.dims.begin(), name.shape.dims.begin() + name.shape.rank);
    header[name.name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {num_bytes, end}}};
    num_bytes = end;
  }
  std::vector<uint16_t> pool(1 << 20);
  testing::RandomValues random(1);
  for (uint16_t& value : pool) value = kernels::Bf16FromFloat(random.Normal() * 0.02f);
  std::ofstream file(directory.path() + "/model.safetensors", std::ios::binary);
  file << testing::SafetensorsBytes(header.dump(), 0);
  for (size_t left = num_bytes; left > 0;) {
    const size_t count = std::min(left, 2 * pool.size());
    file.write(reinterpret_cast<const char*>(pool.data()), static_cast<std::streamsize>(count));
    left -= count;
  }
  FT_CHECK(file.good());
}

// Notes the largest Pss of its life.
class PeakWatch {
 public:
  PeakWatch() : thread_([this] { Watch(); }) {}
  double Stop() {
    is_stopping_ = true;
    thread_.join();
    return peak_;
  }

 private:
  void Watch() {
    while (!is_stopping_) {
      peak_ = std::max(peak_, Pss());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  double peak_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

int Main() {
  const testing::TempDir directory;
  WriteCheckpoint(directory);
  const double before = Pss();
  PeakWatch watch;
  const testing::LoadedModel loaded = testing::LoadModel(directory.path(), {.num_blocks = kNumBlocks});
  const double peak = watch.Stop();
  const double after = Pss();
  const auto weights = static_cast<double>(2 * model::CountParameters(loaded.transformer->config()));

  Findings findings;
  findings.Add({.what = "weights", .value = weights / kMegabyte, .unit = "MB"});
  findings.Add({.what = "K/V as configured", .value = loaded.kv.num_bytes() / kMegabyte, .unit = "MB"});
  findings.Add({.what = "Pss before loading", .value = before / kMegabyte, .unit = "MB"});
  findings.Add({.what = "Pss after loading", .value = after / kMegabyte, .unit = "MB"});
  findings.Add({.what = "of it, not weights", .value = (after - weights) / kMegabyte, .unit = "MB", .at_most = 200});
  findings.Add({.what = "peak while loading", .value = 100 * (peak / after - 1), .unit = "% above", .at_most = 10});
  findings.Print(absl::GetFlag(FLAGS_json));
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
