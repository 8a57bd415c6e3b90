// SPDX-License-Identifier: Apache-2.0
// Measures the loading of a model: its time, and this process's share of memory (Pss) during it and after it.
//
//   memory_bench [--short] [--json] [--stored_bits=4]
//
// The bench first writes a checkpoint with random weights to a temporary directory, in the shape of Llama 3.2 1B
// (--short: a fifth of its size). With --stored_bits it quantises that as `foretoken quantize` does, and loads the
// result.
//
// Time: loading the weights with their digest, compared with the least possible time: one read of the file from the
// page cache, and a copy of as many bytes into fresh memory, each on all threads. A virtual machine may get memory from
// its host on the first touch, at a small part of a memory's speed, and may lose free memory after seconds. So each
// measurement takes memory that this process touched and freed just before, and the fastest of several rounds counts
// for all three.
//
// Memory: K/V pages without a token cost nothing, so the bound is for all memory that is not weights.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "client/offline/quantize_checkpoint.h"
#include "common/model/weight_digest.h"
#include "common/model/weight_names.h"
#include "kernels/check.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/make_backend.h"
#include "tests/bench/findings.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(bool, short, false, "a smaller model");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(int, stored_bits, 16, "of a weight of the layers in the file: 16 (bf16), or integers of 8 or 4");

namespace foretoken::bench {
namespace {

constexpr double kMegabyte = 1e6;
constexpr int32_t kNumBlocks = 256;

constexpr int kNumThreads = 2;
constexpr int kRounds = 7;
constexpr size_t kPieceBytes = size_t{1} << 20;

nlohmann::json ConfigOf(bool is_short) {
  nlohmann::json config = {{"model_type", "llama"},
                           {"hidden_size", 2048},
                           {"intermediate_size", 8192},
                           {"num_hidden_layers", 16},
                           {"num_attention_heads", 32},
                           {"num_key_value_heads", 8},
                           {"head_dim", 64},
                           {"vocab_size", 128256},
                           {"rope_theta", 500000.0},
                           {"max_position_embeddings", 4096},
                           {"tie_word_embeddings", true}};
  if (is_short) {
    config.update({{"hidden_size", 1024}, {"intermediate_size", 4096}, {"num_hidden_layers", 12}});
    config.update({{"num_attention_heads", 16}, {"num_key_value_heads", 4}, {"vocab_size", 32000}});
  }
  return config;
}

// In bytes.
double Pss() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return 1024 * std::stod(line.substr(4));
  }
  FT_CHECK(false);
}

void WriteCheckpoint(const testing::TempDir& directory) {
  directory.Write("config.json", ConfigOf(absl::GetFlag(FLAGS_short)).dump());
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

// Records the largest Pss during its lifetime.
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

double Seconds(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void ForEachPiece(size_t num_bytes, kernels::cpu::ThreadPool& pool,
                  const std::function<void(size_t begin, size_t length, int thread_idx)>& work) {
  pool.ParallelFor(static_cast<int64_t>((num_bytes + kPieceBytes - 1) / kPieceBytes), [&](int64_t piece, int thread) {
    const size_t begin = static_cast<size_t>(piece) * kPieceBytes;
    work(begin, std::min(kPieceBytes, num_bytes - begin), thread);
  });
}

void ReadOnce(const std::string& path, size_t num_bytes, kernels::cpu::ThreadPool& pool) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  FT_CHECK(file >= 0);
  std::vector<std::vector<char>> buffers(pool.num_threads(), std::vector<char>(kPieceBytes));
  ForEachPiece(num_bytes, pool, [&](size_t begin, size_t length, int thread) {
    FT_CHECK(::pread(file, buffers[thread].data(), length, static_cast<off_t>(begin)) == static_cast<ssize_t>(length));
  });
  ::close(file);
}

// Copies into fresh memory, and frees it.
void CopyOnce(std::span<const char> source, size_t num_bytes, kernels::cpu::ThreadPool& pool) {
  const kernels::cpu::Pages copy(num_bytes);
  ForEachPiece(num_bytes, pool, [&](size_t begin, size_t length, int) {
    const size_t from = begin % (source.size() - kPieceBytes);
    std::memcpy(static_cast<char*>(copy.data()) + begin, source.data() + from, length);
  });
}

// Touches this much memory and frees it, so the next measurement can take it.
void TouchOnce(size_t num_bytes, kernels::cpu::ThreadPool& pool) {
  const kernels::cpu::Pages pages(num_bytes);
  ForEachPiece(num_bytes, pool, [&](size_t begin, size_t, int) { static_cast<char*>(pages.data())[begin] = 1; });
}

// With the digest, as a verifier loads weights.
model::ReadTimes LoadOnce(const std::string& directory, kernels::Backend& backend) {
  const model::ModelConfig config = model::LoadModelConfig(directory).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  model::WeightDigest digest = model::WeightDigest::Make(config, checkpoint).value();
  model::WeightReader reader({.digest = &digest});
  const model::ModelWeights weights = model::LoadWeights(config, checkpoint, backend, reader).value();
  FT_CHECK(!digest.Finish().empty());
  return reader.times();
}

void MeasureTime(const std::string& directory, Findings& findings) {
  const std::string path = directory + "/model.safetensors";
  const size_t num_bytes = std::filesystem::file_size(path);
  kernels::cpu::ThreadPool pool(kNumThreads);
  const std::unique_ptr<kernels::Backend> backend = kernels::MakeBackend({.num_threads = kNumThreads}).backend;
  const std::vector<char> source(size_t{512} << 20, 1);  // larger than the caches
  std::vector<double> reads, copies, loads;
  for (int round = 0; round < kRounds; ++round) {
    reads.push_back(Seconds([&] { ReadOnce(path, num_bytes, pool); }));
    TouchOnce(num_bytes, pool);
    copies.push_back(Seconds([&] { CopyOnce(source, num_bytes, pool); }));
    TouchOnce(num_bytes, pool);
    loads.push_back(Seconds([&] { LoadOnce(directory, *backend); }));
  }
  const auto gigabytes = static_cast<double>(num_bytes) / 1e9;
  const double read = std::ranges::min(reads), copy = std::ranges::min(copies), load = std::ranges::min(loads);
  findings.Add({.what = "file, in the page cache", .value = gigabytes, .unit = "GB"});
  findings.Add({.what = "reading it once", .value = gigabytes / read, .unit = "GB/s"});
  findings.Add({.what = "copying as much to fresh memory", .value = gigabytes / copy, .unit = "GB/s"});
  findings.Add({.what = "loading, with the digest", .value = gigabytes / load, .unit = "GB/s"});
  findings.Add(
      {.what = "its time / (reading + copying)", .value = load / (read + copy), .unit = "times", .at_most = 1.5});
}

void MeasureMemory(const std::string& directory, Findings& findings) {
  const double before = Pss();
  PeakWatch watch;
  const testing::LoadedModel loaded =
      testing::LoadModel(directory, {.num_threads = kNumThreads, .num_blocks = kNumBlocks});
  const double peak = watch.Stop();
  const double after = Pss();
  const std::string path = directory + "/model.safetensors";
  const bool is_bf16 = absl::GetFlag(FLAGS_stored_bits) == 16;
  const auto weights = is_bf16 ? static_cast<double>(2 * model::CountParameters(loaded.transformer->config()))
                               : static_cast<double>(std::filesystem::file_size(path));
  findings.Add({.what = "weights", .value = weights / kMegabyte, .unit = "MB"});
  findings.Add({.what = "K/V as configured", .value = loaded.kv.num_bytes() / kMegabyte, .unit = "MB"});
  findings.Add({.what = "Pss before loading", .value = before / kMegabyte, .unit = "MB"});
  findings.Add({.what = "Pss after loading", .value = after / kMegabyte, .unit = "MB"});
  findings.Add({.what = "of it, not weights", .value = (after - weights) / kMegabyte, .unit = "MB", .at_most = 200});
  findings.Add({.what = "peak while loading", .value = 100 * (peak / after - 1), .unit = "% above", .at_most = 10});
  const double rest = before + static_cast<double>(after - before - weights);  // K/V, tables, and the process itself
  findings.Add({.what = "peak of the weights", .value = (peak - rest) / weights, .unit = "times", .at_most = 1.05});
}

int Main() {
  if (const int bits = absl::GetFlag(FLAGS_stored_bits); bits != 16 && bits != 8 && bits != 4) {
    std::fprintf(stderr, "--stored_bits: expected 16, 8 or 4, got %d\n", bits);
    return 1;
  }
  const testing::TempDir written, quantised;
  WriteCheckpoint(written);
  std::string directory = written.path();
  if (const int bits = absl::GetFlag(FLAGS_stored_bits); bits != 16) {
    directory = quantised.path();
    const auto ignored = [](int64_t, int64_t) {};
    FT_CHECK(client::QuantizeCheckpoint({.input = written.path(), .output = directory, .bits = bits}, ignored).ok());
  }
  Findings findings;
  MeasureMemory(directory, findings);
  MeasureTime(directory, findings);
  findings.Print(absl::GetFlag(FLAGS_json));
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
