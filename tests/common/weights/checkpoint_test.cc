// SPDX-License-Identifier: Apache-2.0
// Checkpoint directories. If this test fails, a model is loaded with wrong or missing tensors, or loading takes twice
// the memory.
#include "common/weights/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "tests/testing/models/safetensors_writer.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::weights {
namespace {

using kernels::Shape;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::SafetensorsBytes;
using testing::SourcePath;
using testing::TempDir;

constexpr const char* kOneTensor = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST(Checkpoint, FindsATensorOfASingleFile) {
  const auto checkpoint = Checkpoint::Open(SourcePath("tests/cases/models/llama"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto q = checkpoint->Find("model.layers.1.self_attn.q_proj.weight", Shape(64, 64));
  ASSERT_TRUE(q.ok()) << q.status();
  EXPECT_EQ(q->dtype, kernels::DType::kBF16);
  EXPECT_EQ(q->num_bytes(), 64 * 64 * 2);
}

TEST(Checkpoint, FindsTensorsOfSeveralShards) {
  const auto checkpoint = Checkpoint::Open(SourcePath("tests/cases/models/qwen2-mixed-window-sharded"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->Find("model.embed_tokens.weight", Shape(307, 64)).ok());
  EXPECT_TRUE(checkpoint->Find("lm_head.weight", Shape(307, 64)).ok());
  EXPECT_TRUE(checkpoint->Contains("model.layers.3.self_attn.k_proj.bias"));
  EXPECT_FALSE(checkpoint->Contains("model.layers.4.self_attn.k_proj.bias"));
  EXPECT_EQ(checkpoint->num_bytes(), 326528);  // total_size of the index
}

TEST(Checkpoint, SingleFileCountsWhereBothLayoutsArePresent) {
  const TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes(kOneTensor, 8));
  dir.Write("model.safetensors.index.json", "damaged");
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->Contains("a"));
}

TEST(Checkpoint, MissingTensorIsNamedWithTheDirectory) {
  const std::string directory = SourcePath("tests/cases/models/llama-llama3-tied");
  const auto checkpoint = Checkpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok());
  const absl::Status status = checkpoint->Find("lm_head.weight", Shape(301, 64)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr(directory), HasSubstr("tensor lm_head.weight [301, 64] is missing")));
}

// Stacks as gpt-oss has them, in small.
constexpr const char* kStacks =
    R"({"l.experts.gate_up_proj_blocks":{"dtype":"U8","shape":[2,1,2,16],"data_offsets":[0,64]},
    "l.experts.gate_up_proj_scales":{"dtype":"U8","shape":[2,1,2],"data_offsets":[64,68]},
    "l.experts.gate_up_proj_bias":{"dtype":"BF16","shape":[2,1],"data_offsets":[68,72]},
    "l.experts.down_proj":{"dtype":"BF16","shape":[2,3,1],"data_offsets":[72,84]}})";

TEST(Checkpoint, SplitsStacksOfExperts) {
  const TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes(kStacks, 84));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(
      checkpoint->Names(),
      ::testing::ElementsAre("l.experts.0.down_proj.weight", "l.experts.0.gate_up_proj.bias",
                             "l.experts.0.gate_up_proj.weight_packed", "l.experts.0.gate_up_proj.weight_scale",
                             "l.experts.1.down_proj.weight", "l.experts.1.gate_up_proj.bias",
                             "l.experts.1.gate_up_proj.weight_packed", "l.experts.1.gate_up_proj.weight_scale"));
  EXPECT_EQ(checkpoint->num_bytes(), 84);
  const StoredTensor* const first = checkpoint->FindStored("l.experts.0.gate_up_proj.weight_packed");
  const StoredTensor* const second = checkpoint->FindStored("l.experts.1.gate_up_proj.weight_packed");
  EXPECT_EQ(second->shape, (std::vector<int64_t>{1, 32}));
  EXPECT_EQ(second->bytes.size(), 32);
  EXPECT_EQ(second->bytes.data(), first->bytes.data() + 32);
  EXPECT_TRUE(checkpoint->Find("l.experts.1.down_proj.weight", Shape(3, 1)).ok());
  EXPECT_FALSE(checkpoint->Contains("l.experts.2.down_proj.weight"));
}

TEST(Checkpoint, KeepsAStackOfTooManyExpertsAndAnExpertThatStandsAlone) {
  const TempDir dir;
  dir.Write("model.safetensors",
            SafetensorsBytes(R"({"l.experts.down_proj":{"dtype":"U8","shape":[5000,1],"data_offsets":[0,5000]},
                                 "k.experts.down_proj":{"dtype":"U8","shape":[1,4],"data_offsets":[5000,5004]},
                                 "k.experts.0.down_proj.weight":{"dtype":"U8","shape":[2],"data_offsets":[5004,5006]},
                                 "gate_up_proj":{"dtype":"U8","shape":[2,1],"data_offsets":[5006,5008]},
                                 "n.experts.down_proj":{"dtype":"U8","shape":[2,0],"data_offsets":[5008,5008]}})",
                             5008));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->Names(), ::testing::ElementsAre("gate_up_proj", "k.experts.0.down_proj.weight",
                                                          "l.experts.down_proj", "n.experts.down_proj"));
  EXPECT_EQ(checkpoint->FindStored("k.experts.0.down_proj.weight")->shape, std::vector<int64_t>{2});
}

struct UnfitTensor {
  const char* what;
  const char* entry;  // of tensor `a`, which has 8 bytes of data
  Shape expected_shape;
  const char* message;
};

const UnfitTensor kUnfitTensors[] = {
    {"WrongShape", R"({"dtype":"F32","shape":[1,2],"data_offsets":[0,8]})", Shape(2, 1),
     "tensor a: expected shape [2, 1], got [1, 2]"},
    {"WrongRank", R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", Shape(2, 1), "expected shape [2, 1], got [2]"},
    {"ManyDims", R"({"dtype":"F32","shape":[2,1,1,1,1,1],"data_offsets":[0,8]})", Shape(2), "got [2, 1, 1, 1, 1, 1]"},
    {"Integers", R"({"dtype":"I32","shape":[2],"data_offsets":[0,8]})", Shape(2),
     "tensor a: expected dtype F32, F16 or BF16, got I32"},
    {"Doubles", R"({"dtype":"F64","shape":[1],"data_offsets":[0,8]})", Shape(1), "F32, F16 or BF16, got F64"},
    {"Float8", R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})", Shape(8), "F32, F16 or BF16, got F8_E4M3"},
    {"Float8OfAnotherShape", R"({"dtype":"F8_E5M2","shape":[4,2],"data_offsets":[0,8]})", Shape(2),
     "F32, F16 or BF16, got F8_E5M2"},
};

class Unfit : public ::testing::TestWithParam<UnfitTensor> {};

TEST_P(Unfit, TensorIsRefusedByName) {
  const TempDir dir;
  const std::string path =
      dir.Write("model.safetensors", SafetensorsBytes(std::string("{\"a\":") + GetParam().entry + "}", 8));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const absl::Status status = checkpoint->Find("a", GetParam().expected_shape).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr(path), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Unfit, ::testing::ValuesIn(kUnfitTensors),
                         [](const auto& info) { return std::string(info.param.what); });

TEST(Checkpoint, MisalignedTensorIsRefusedByName) {
  const TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes(R"({"flag":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                                      "a":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
                                                  9));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->Find("a", Shape(2)).status().ToString(),
              AllOf(HasSubstr("tensor a: its bytes lie at no multiple of 4"), HasSubstr("save it with save_file")));
}

TEST(Checkpoint, EmptyDirectoryIsNotFound) {
  const TempDir dir;
  const absl::Status status = Checkpoint::Open(dir.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr(dir.path()), HasSubstr("neither model.safetensors nor")));
}

TEST(Checkpoint, ALinkToNothingIsNamed) {
  const TempDir dir;
  std::filesystem::create_symlink("../../blobs/x", dir.path() + "/model.safetensors");
  EXPECT_THAT(Checkpoint::Open(dir.path()).status().ToString(), HasSubstr("is a link to a file that is not there"));
}

TEST(Checkpoint, DamagedSingleFileIsRefusedByName) {
  const TempDir dir;
  const std::string path = dir.Write("model.safetensors", "short");
  EXPECT_THAT(Checkpoint::Open(dir.path()).status().ToString(), HasSubstr(path));
}

TEST(Checkpoint, NamesTheWeightsOfOtherFormatsThatTheDirectoryHolds) {
  const TempDir dir;
  dir.Write("config.json", "{}");
  dir.Write("pytorch_model-00001-of-00002.bin", "x");
  EXPECT_THAT(
      Checkpoint::Open(dir.path()).status().ToString(),
      HasSubstr(
          "index.json, but pytorch_model-00001-of-00002.bin. A directory's weights are read from safetensors alone"));
  dir.Write("pytorch_model-00002-of-00002.bin", "x");
  dir.Write("model.gguf", "x");
  dir.Write("model-f16\n.gguf", "x");
  dir.Write("model-00001-of-00002.safetensors", "x");
  EXPECT_THAT(Checkpoint::Open(dir.path()).status().ToString(),
              HasSubstr(", but model-00001-of-00002.safetensors, model-f16\\n.gguf, model.gguf and 2 more files"));
}

TEST(Checkpoint, GitLfsPointersAreRefusedByName) {
  const TempDir dir;
  const std::string path = dir.Write("model.safetensors", "version https://git-lfs.github.com/spec/v1\nsize 5\n");
  EXPECT_THAT(Checkpoint::Open(dir.path()).status().ToString(), HasSubstr(path + " is a Git LFS pointer"));
}

struct DamagedIndex {
  const char* what;
  const char* index;
  const char* message;
};

const DamagedIndex kDamagedIndexes[] = {
    {"NoJson", "{", "index.json: not valid JSON"},
    {"NoObject", "[]", "index.json: weight_map is missing"},
    {"NoWeightMap", R"({"metadata":{}})", "index.json: weight_map is missing"},
    {"WeightMapIsAList", R"({"weight_map":[]})", "index.json: weight_map is missing or no object"},
    {"ShardIsNoString", R"({"weight_map":{"a":1}})", "tensor a: the shard is not a string"},
    {"ShardOutsideTheDirectory", R"({"weight_map":{"a":"../one.safetensors"}})",
     "tensor a: expected the name of a .safetensors file beside the index, got ../one.safetensors"},
    {"AbsoluteShard", R"({"weight_map":{"a":"/etc/one.safetensors"}})", "got /etc/one.safetensors"},
    {"ShardOfAnotherFormat", R"({"weight_map":{"a":"pytorch_model.bin"}})", "got pytorch_model.bin"},
    {"MissingShard", R"({"weight_map":{"a":"two.safetensors"}})", "two.safetensors"},
    {"DamagedShard", R"({"weight_map":{"a":"damaged.safetensors"}})", "damaged.safetensors: expected at least 8 bytes"},
    {"TensorNotInItsShard", R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})",
     "one.safetensors does not hold it"},
};

class BadIndex : public ::testing::TestWithParam<DamagedIndex> {};

TEST_P(BadIndex, IsRefusedByName) {
  const TempDir dir;
  dir.Write("one.safetensors", SafetensorsBytes(kOneTensor, 8));
  dir.Write("damaged.safetensors", "short");
  dir.Write("model.safetensors.index.json", GetParam().index);
  const absl::Status status = Checkpoint::Open(dir.path()).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr(dir.path()), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, BadIndex, ::testing::ValuesIn(kDamagedIndexes),
                         [](const auto& info) { return std::string(info.param.what); });

TEST(Checkpoint, DeeplyNestedIndexIsRefused) {
  const TempDir dir;
  const std::string nested = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  dir.Write("model.safetensors.index.json", R"({"weight_map":{"a":)" + nested + "}}");
  EXPECT_THAT(Checkpoint::Open(dir.path()).status().ToString(),
              HasSubstr("index.json: expected JSON of at most 64 nested levels"));
}

// The pages from `begin` on that are mapped in now: bit 63 of their entries in Linux's pagemap.
std::vector<bool> ResidentPages(const char* begin, size_t num_pages, size_t page_bytes) {
  std::vector<uint64_t> entries(num_pages);
  const auto num_bytes = static_cast<ssize_t>(num_pages * sizeof(uint64_t));
  const auto offset = static_cast<off_t>(reinterpret_cast<uintptr_t>(begin) / page_bytes * sizeof(uint64_t));
  const int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(::pread(pagemap, entries.data(), num_pages * sizeof(uint64_t), offset), num_bytes);
  ::close(pagemap);
  std::vector<bool> is_resident;
  for (const uint64_t entry : entries) is_resident.push_back(entry >> 63 != 0);
  return is_resident;
}

TEST(ReleasePages, ReleasesWholePagesAndKeepsTheContent) {
  const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const TempDir dir;
  const std::string content(4 * page_bytes, 'x');
  const auto file = base::MappedFile::Open(dir.Write("pages", content));
  ASSERT_TRUE(file.ok());
  const char* data = reinterpret_cast<const char*>(file->bytes().data());
  ASSERT_EQ(std::string(data, content.size()), content);
  ASSERT_EQ(ResidentPages(data, 4, page_bytes), (std::vector<bool>{true, true, true, true}));
  ReleasePages(data + 1, 3 * page_bytes);  // only pages 1 and 2 lie whole inside the range
  EXPECT_EQ(ResidentPages(data, 4, page_bytes), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(std::string(data, content.size()), content);
}

TEST(ReleasePages, LeavesARangeInsideOnePageAlone) {
  const std::string text(100, 'x');
  ReleasePages(text.data(), text.size());
  EXPECT_EQ(text, std::string(100, 'x'));
}

}  // namespace
}  // namespace foretoken::weights
