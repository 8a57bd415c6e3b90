// SPDX-License-Identifier: Apache-2.0
// Safetensors files. If this test fails, a damaged file crashes a server, or a model is loaded with wrong weights.
#include "common/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/mapped_file.h"
#include "tests/testing/models/safetensors_writer.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_time.h"

namespace foretoken::weights {
namespace {

using ::testing::HasSubstr;
using testing::LengthBytes;
using testing::SafetensorsBytes;

absl::StatusOr<StoredTensors> Read(const std::string& bytes) {
  return ReadSafetensors(std::as_bytes(std::span(bytes)), "x.safetensors");
}

TEST(Safetensors, GivesDtypeShapeAndBytesOfEveryTensor) {
  const std::string bytes = SafetensorsBytes(R"({"__metadata__":{"format":"pt"},
      "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},
      "a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},
      "empty":{"dtype":"F32","shape":[0,5],"data_offsets":[8,8]}})",
                                             20);
  const auto tensors = Read(bytes);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3);
  EXPECT_EQ(tensors->at("a").dtype, "I64");
  EXPECT_TRUE(tensors->at("a").shape.empty());
  EXPECT_EQ(tensors->at("b").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensors->at("b").bytes.size(), 12);
  EXPECT_EQ(std::to_integer<int>(tensors->at("b").bytes[0]), 8);
  EXPECT_TRUE(tensors->at("empty").bytes.empty());
}

TEST(Safetensors, MapsAFile) {
  const testing::TempDir dir;
  const std::string path =
      dir.Write("one.safetensors", SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(std::to_integer<int>(file->tensors().at("a").bytes[2]), 2);
}

TEST(Safetensors, MissingFileIsNotFound) {
  const auto file = SafetensorsFile::Open("/nowhere/model.safetensors");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(file.status().ToString(), HasSubstr("/nowhere/model.safetensors"));
}

struct DamagedFile {
  const char* what;
  std::string bytes;
  const char* message;
};

// One F32 [2] tensor `a` whose entry is `entry`, with 8 bytes of data.
std::string WithEntry(const std::string& entry) { return SafetensorsBytes("{\"a\":" + entry + "}", 8); }

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

const DamagedFile kDamagedFiles[] = {
    {"NoBytes", "", "expected at least 8 bytes, the file has 0"},
    {"FewerBytesThanALength", "1234567", "expected at least 8 bytes, the file has 7"},
    {"HeaderLongerThanTheFile", LengthBytes(100) + "{}", "a header of 100 bytes in a file of 10"},
    {"HugeHeader", LengthBytes(~uint64_t{0}) + "{}", "a header of 18446744073709551615 bytes, at most 100000000"},
    {"NoHeader", LengthBytes(0), "the header: not valid JSON"},
    {"TruncatedJson", SafetensorsBytes(R"({"a":{"dtype":"F32")", 8), "the header: not valid JSON"},
    {"InvalidUtf8", SafetensorsBytes("{\"\xff\":1}", 8), "the header: not valid JSON"},
    {"HeaderIsAList", SafetensorsBytes("[]", 0), "the header is not a JSON object"},
    {"DeepNesting", SafetensorsBytes(Nested(1'000'000), 0), "the header: expected JSON of at most 64 nested"},
    {"DeepNestingInAnEntry", WithEntry(Nested(1'000'000)), "the header: expected JSON of at most 64 nested"},
    {"DeepNestingInAShape", WithEntry(R"({"dtype":"F32","shape":)" + Nested(100'000) + "}"),
     "the header: expected JSON of at most 64 nested"},
    {"DuplicateTensor",
     SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                          "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                      8),
     "the header names a twice"},
    {"DuplicateTensorSpeltOtherwise",
     SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                          "\u0061":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                      8),
     "the header names a twice"},
    {"DuplicateField", WithEntry(R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"), "shape twice"},
    {"EntryIsNoObject", WithEntry("7"), "tensor a: the header entry is not an object"},
    {"NoDtype", WithEntry(R"({"shape":[2],"data_offsets":[0,8]})"), "tensor a: dtype is missing"},
    {"DtypeIsNoString", WithEntry(R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})"),
     "tensor a: dtype is missing or no"},
    {"UnknownDtype", WithEntry(R"({"dtype":"Q4","shape":[2],"data_offsets":[0,8]})"),
     "tensor a: dtype Q4 is not known"},
    {"NoShape", WithEntry(R"({"dtype":"F32","data_offsets":[0,8]})"), "tensor a: shape is missing"},
    {"NegativeDim", WithEntry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "tensor a: shape expects"},
    {"FractionalDim", WithEntry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "got 2.0"},
    {"DimBeyond63Bits", WithEntry(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})"),
     "tensor a: shape expects"},
    {"DimBeyond64Bits", WithEntry(R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]})"),
     "tensor a: shape expects"},
    {"OverflowingShape", WithEntry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
     "tensor a: shape [4294967296, 4294967296] overflows"},
    {"ShapeThatOverflowsToTheRightSize",
     WithEntry(R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})"),
     "tensor a: shape [4611686018427387906] overflows"},
    {"NoOffsets", WithEntry(R"({"dtype":"F32","shape":[2]})"), "tensor a: data_offsets is missing"},
    {"ThreeOffsets", WithEntry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})"), "expects 2 integers, got 3"},
    {"NegativeOffset", WithEntry(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"),
     "tensor a: data_offsets expects"},
    {"BackwardOffsets", WithEntry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "[8, 0] run backwards"},
    {"OffsetsBehindTheEnd", WithEntry(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"),
     "tensor a: data_offsets [4, 12] end behind the file's 8 bytes of data"},
    {"TooFewBytes", WithEntry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"),
     "tensor a: F32 [2] expects 8 bytes, data_offsets give 4"},
    {"WrongDtypeSize", WithEntry(R"({"dtype":"BF16","shape":[2],"data_offsets":[0,8]})"), "expects 4 bytes"},
    {"Overlap",
     SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                          "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                      8),
     "tensor b overlaps a"},
    {"Gap",
     SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                          "b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                      12),
     "tensor b begins 4 bytes behind a"},
    {"GapAtTheBegin", SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
     "tensor a begins 4 bytes behind the header"},
    {"LooseBytes", SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9),
     "1 bytes at the end belong to no tensor"},
};

class Damaged : public ::testing::TestWithParam<DamagedFile> {};

TEST_P(Damaged, IsRefusedByName) {
  const auto tensors = Read(GetParam().bytes);
  EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(tensors.status().ToString(), HasSubstr("x.safetensors: "));
  EXPECT_THAT(tensors.status().ToString(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Safetensors, Damaged, ::testing::ValuesIn(kDamagedFiles),
                         [](const auto& info) { return std::string(info.param.what); });

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = base::ReadFile(testing::SourcePath("tests/cases/models/qwen3/model.safetensors")).value();
  ASSERT_TRUE(Read(whole).ok());
  for (size_t size = 0; size < whole.size(); size += size < 6000 ? 1 : 997) {
    EXPECT_FALSE(Read(whole.substr(0, size)).ok()) << size;
  }
}

// A release build takes 0.6 s, one with sanitizers up to 8 s. Time that grows with the square of the tensors is more
// than 200 s.
TEST(Safetensors, TheTimeOfAHeaderGrowsWithItsTensors) {
  constexpr int kNumTensors = 150'000;
  constexpr absl::Duration kLimit = absl::Seconds(30);
  std::string header = "{";
  for (int i = 0; i < kNumTensors; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",",
                    i + 1, "]}");
  }
  const std::string file = SafetensorsBytes(header + "}", kNumTensors);
  const absl::Duration start = testing::ThreadTime();
  const auto tensors = Read(file);
  const absl::Duration used = testing::ThreadTime() - start;
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), kNumTensors);
  EXPECT_LT(used, kLimit);
}

// A file that passes the checks must be safe to use: every tensor's bytes lie inside the file and fit its shape.
void CheckViews(const StoredTensors& tensors, const std::string& bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  for (const auto& [name, tensor] : tensors) {
    ASSERT_GE(tensor.bytes.data(), begin);
    ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), begin + bytes.size());
    size_t num_elements = 1;
    for (const int64_t dim : tensor.shape) num_elements *= static_cast<size_t>(dim);
    ASSERT_EQ(num_elements == 0 ? 0 : tensor.bytes.size() % num_elements, 0) << name;
  }
}

TEST(Safetensors, RandomDamageToTheHeaderNeverCrashes) {
  const std::string whole = SafetensorsBytes(R"({"__metadata__":{"format":"pt"},
      "model.embed":{"dtype":"BF16","shape":[4,3],"data_offsets":[0,24]},
      "model.norm":{"dtype":"F32","shape":[3],"data_offsets":[24,36]},
      "ids":{"dtype":"I64","shape":[1,1],"data_offsets":[36,44]}})",
                                             44);
  const size_t header_end = whole.size() - 44;
  constexpr std::string_view kLikelyBytes = "0123456789-.,:[]{}\"eE \\\0\xff";
  std::mt19937 random(20240607);
  int num_accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = whole;
    const int num_flips = 1 + static_cast<int>(random() % 3);
    for (int flip = 0; flip < num_flips; ++flip) {
      char& target = damaged[random() % header_end];
      target = random() % 2 == 0 ? static_cast<char>(random()) : kLikelyBytes[random() % kLikelyBytes.size()];
    }
    const auto tensors = Read(damaged);
    if (!tensors.ok()) continue;
    ++num_accepted;
    CheckViews(*tensors, damaged);
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_LT(num_accepted, 20'000);
}

}  // namespace
}  // namespace foretoken::weights
