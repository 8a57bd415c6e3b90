// SPDX-License-Identifier: Apache-2.0
// Files as strangers write them. If this test fails, a file is read wrongly, or a hostile one ends the process or takes
// its memory.
#include "common/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_model.h"
#include "common/gguf/model_files.h"
#include "common/gguf/token_list.h"
#include "common/model/config/config.h"
#include "common/model/model_weights.h"
#include "common/tokenizer/tokenizer.h"
#include "common/weights/checkpoint.h"
#include "tests/testing/models/gguf_families.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/models/gguf_writer.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::gguf {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;

absl::StatusOr<GgufContent> Read(const std::string& bytes) {
  return ReadGguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "x.gguf");
}

GgufWriter Small() {
  GgufWriter writer;
  writer.Add("a.text", std::string("tea"));
  writer.Add("a.number", uint32_t{7});
  writer.AddTensor({.name = "one", .type = 0, .shape = {2, 3}, .bytes = std::string(24, 'a')});
  writer.AddTensor({.name = "two", .type = 8, .shape = {1, 64}, .bytes = std::string(68, 'b')});
  return writer;
}

TEST(GgufFile, HoldsKeysAndTensors) {
  for (const uint32_t version : {2, 3}) {
    GgufWriter writer = Small();
    writer.version = version;
    writer.Add("a.texts", std::vector<std::string>{"x", "", "zz"});
    writer.Add("a.floats", std::vector<float>{0.1f, 2});
    writer.Add("a.flag", true);
    const std::string bytes = writer.Bytes();
    const absl::StatusOr<GgufContent> content = Read(bytes);
    ASSERT_TRUE(content.ok()) << content.status();
    const Metadata& metadata = content->metadata;
    EXPECT_EQ(metadata.Required<std::string>("a.text").value(), "tea");
    EXPECT_EQ(metadata.Required<int64_t>("a.number").value(), 7);
    EXPECT_EQ(metadata.Required<double>("a.number").value(), 7);
    EXPECT_TRUE(metadata.OrDefault<bool>("a.flag", false).value());
    EXPECT_EQ(metadata.OrDefault<int64_t>("a.other", 5).value(), 5);
    EXPECT_THAT(metadata.RequiredList<std::string>("a.texts").value(), ::testing::ElementsAre("x", "", "zz"));
    EXPECT_THAT(metadata.RequiredList<double>("a.floats").value(), ::testing::ElementsAre(0.1, 2));
    EXPECT_EQ(content->tensors.at("one").shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(content->tensors.at("two").type.name, "Q8_0");
    EXPECT_EQ(static_cast<char>(content->tensors.at("two").bytes.back()), 'b');
  }
}

TEST(GgufFile, KeysOfAnotherTypeAreRefused) {
  const std::string bytes = Small().Bytes();
  const GgufContent content = Read(bytes).value();
  EXPECT_THAT(content.metadata.Required<int64_t>("a.text").status().ToString(),
              HasSubstr("x.gguf: a.text: expected an integer below 2^63, got a value of type string"));
  EXPECT_THAT(content.metadata.Required<bool>("a.number").status().ToString(), HasSubstr("expected true or false"));
  EXPECT_THAT(content.metadata.RequiredList<int64_t>("a.number").status().ToString(), HasSubstr("expected a list"));
  EXPECT_THAT(content.metadata.Required<double>("a.none").status().ToString(), HasSubstr("a.none: is missing"));
}

// Each element takes many times its one byte in the memory of a server.
TEST(GgufFile, ListsLongerThanAnyVocabularyAreRefused) {
  constexpr uint64_t kTooMany = (uint64_t{1} << 24) + 1;
  const std::string list =
      GgufWriter::BytesOf(uint32_t{0}) + GgufWriter::BytesOf(kTooMany) + std::string(kTooMany, '\1');
  constexpr const char* kRefusal = ": expected a list of at most 16777216 elements, got 16777217";
  GgufWriter many_tokens;
  many_tokens.Add("tokenizer.ggml.model", std::string("gpt2"));
  many_tokens.AddRaw("tokenizer.ggml.tokens", 9, list);
  const std::string tokens = many_tokens.Bytes();
  const GgufContent content = Read(tokens).value();
  for (const absl::Status& status :
       {ReadTokens(content.metadata).status(), ReadSpecialIds(content.metadata).status()}) {
    EXPECT_THAT(status.ToString(), HasSubstr(absl::StrCat("x.gguf: tokenizer.ggml.tokens", kRefusal)));
  }
  GgufWriter many_kinds;
  many_kinds.Add("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  many_kinds.AddRaw("tokenizer.ggml.token_type", 9, list);
  const std::string kinds = many_kinds.Bytes();
  EXPECT_THAT(ReadTokens(Read(kinds)->metadata).status().ToString(),
              HasSubstr(absl::StrCat("x.gguf: tokenizer.ggml.token_type", kRefusal)));
}

struct Fault {
  const char* name;
  void (*change)(GgufWriter& writer);
  const char* message;
};

class GgufFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(GgufFaults, AreNamed) {
  GgufWriter writer = Small();
  GetParam().change(writer);
  const absl::Status status = Read(writer.Bytes()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("x.gguf"), HasSubstr(GetParam().message)));
}

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

INSTANTIATE_TEST_SUITE_P(
    All, GgufFaults,
    ::testing::Values(
        Fault{"Version", [](auto& w) { w.version = 1; }, "expected GGUF version 2 or 3, got 1"},
        Fault{"BigEndian", [](auto& w) { w.version = 3 << 24; }, "got a big-endian file"},
        Fault{"ManyKeys", [](auto& w) { w.num_keys = kHuge; }, "key 3"},
        Fault{"ManyTensors", [](auto& w) { w.num_tensors = kHuge; }, "tensor : expected a name"},
        Fault{"TwoKeys", [](auto& w) { w.Add("a.number", uint32_t{8}); }, "a.number: the file has this key twice"},
        Fault{"NoKey", [](auto& w) { w.Add("", uint32_t{8}); }, "expected a key of 1 to 65535 bytes"},
        Fault{"KeyNotUtf8", [](auto& w) { w.Add("\xff", uint32_t{8}); }, "bytes of UTF-8"},
        Fault{"UnknownType", [](auto& w) { w.AddRaw("k", 13, "1234"); }, "k: type 13 is not known"},
        Fault{"ListOfLists", [](auto& w) { w.AddRaw("k", 9, std::string("\x09\0\0\0\1\0\0\0\0\0\0\0", 12)); },
              "k: lists of lists are not supported"},
        Fault{"LongList", [](auto& w) { w.AddRaw("k", 9, std::string("\x0a\0\0\0\0\0\0\0\0\0\0\x20", 12)); },
              "k: expected"},
        Fault{"LongText", [](auto& w) { w.AddRaw("k", 8, std::string(8, '\xff')); },
              "k: expected 18446744073709551615"},
        Fault{"ManyDims",
              [](auto& w) {
                w.AddTensor({.name = "t", .shape = {1, 1, 1, 1, 1}, .bytes = "1234"});
              },
              "tensor t: expected at most 4 dimensions, got 5"},
        Fault{"NoValues", [](auto& w) { w.AddTensor({.name = "t", .shape = {0}}); }, "tensor t: dimension 0 of 0"},
        Fault{"Overflow",
              [](auto& w) {
                w.AddTensor({.name = "t", .shape = {1 << 30, 1 << 30, 16}, .bytes = "1234"});
              },
              "tensor t: dimension 2 of 1073741824"},
        Fault{"TooLarge", [](auto& w) { w.AddTensor({.name = "t", .shape = {1000}, .bytes = "1234"}); },
              "tensor t: F32 [1000] needs 4000 bytes"},
        Fault{"FarAway", [](auto& w) { w.AddTensor({.name = "t", .shape = {1}, .bytes = "1", .offset = kHuge - 31}); },
              "needs 4 bytes from offset 18446744073709551584"},
        Fault{"OddPlace", [](auto& w) { w.AddTensor({.name = "t", .shape = {1}, .bytes = "1234", .offset = 4}); },
              "tensor t: expected an offset at a multiple of 32, got 4"},
        Fault{"Overlap", [](auto& w) { w.AddTensor({.name = "t", .shape = {1}, .bytes = "1234", .offset = 0}); },
              "overlaps tensor t"},
        Fault{"PartOfABlock",
              [](auto& w) { w.AddTensor({.name = "t", .type = 8, .shape = {33}, .bytes = std::string(68, 'x')}); },
              "tensor t: Q8_0 expects rows of a multiple of 32 values, got 33"},
        Fault{"TwoTensors", [](auto& w) { w.AddTensor({.name = "one", .shape = {1}, .bytes = "1234"}); },
              "tensor one: the file has this tensor twice"},
        Fault{"LongName", [](auto& w) { w.AddTensor({.name = std::string(300, 'n'), .shape = {1}, .bytes = "1234"}); },
              "expected a name of 1 to 256 bytes"},
        Fault{"UnreadType", [](auto& w) { w.AddTensor({.name = "t", .type = 11, .shape = {256}, .bytes = "x"}); },
              "got Q3_K (number 11)"},
        Fault{"NewType", [](auto& w) { w.AddTensor({.name = "t", .type = 999, .shape = {256}, .bytes = "x"}); },
              "got unknown (number 999)"},
        Fault{"Alignment", [](auto& w) { w.Add("general.alignment", uint32_t{24}); },
              "general.alignment: expected a power of two up to 1048576, got 24"},
        Fault{"NoAlignment", [](auto& w) { w.Add("general.alignment", uint32_t{0}); }, "got 0"}),
    [](const auto& info) { return info.param.name; });

TEST(GgufFile, EveryBeginningOfAFileIsRefused) {
  const std::string bytes = Small().Bytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const absl::Status status = Read(bytes.substr(0, length)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << length;
    EXPECT_THAT(std::string(status.message()), HasSubstr("x.gguf"));
  }
  EXPECT_THAT(Read("safetensors").status().ToString(),
              HasSubstr("expected a GGUF file, got one that begins with \"safe\""));
}

TEST(GgufFile, OtherAlignmentsAreRead) {
  for (const uint32_t alignment : {1, 8, 256}) {
    GgufWriter writer = Small();
    writer.alignment = alignment;
    writer.Add("general.alignment", alignment);
    const std::string bytes = writer.Bytes();
    const absl::StatusOr<GgufContent> content = Read(bytes);
    ASSERT_TRUE(content.ok()) << content.status();
    EXPECT_EQ(static_cast<char>(content->tensors.at("two").bytes[0]), 'b');
  }
}

TEST(GgufPaths, AreFilesAndNoDirectories) {
  const testing::TempDir dir;
  EXPECT_FALSE(IsGgufPath(dir.path()));
  EXPECT_FALSE(IsGgufPath("/nowhere"));
  EXPECT_TRUE(IsGgufPath("/nowhere/x.gguf"));
  EXPECT_TRUE(IsGgufPath(dir.Write("model", "GGUF")));
  EXPECT_EQ(ModelFileName("/nowhere/x.gguf", "config.json"), "/nowhere/x.gguf as config.json");
  dir.Write("tiny.gguf", "GGUF");
  EXPECT_THAT(
      ReadModelFile(dir.path(), "config.json").status().ToString(),
      HasSubstr("config.json: No such file or directory; the directory holds tiny.gguf, and a GGUF file is named"));
  EXPECT_EQ(ReadModelFile("/nowhere/x.gguf", "config.json").status().code(), absl::StatusCode::kNotFound);
}

// Whether it is no error. An error names the file.
bool IsOk(const absl::Status& status, const std::string& path) {
  if (!status.ok()) {
    EXPECT_THAT(status.ToString(), HasSubstr(path));
  }
  return status.ok();
}

// Whether a server would load the weights.
bool HasItsWeights(const std::string& path, const model::ModelConfig& config) {
  const absl::StatusOr<weights::Checkpoint> checkpoint = weights::Checkpoint::Open(path);
  return IsOk(checkpoint.status(), path) && IsOk(model::CheckWeights(config, *checkpoint), path);
}

// Changes some bytes of a good file's header and reads everything that a server reads. Nothing may end the process.
void ReadMutations(const std::string& model, int count, uint32_t seed) {
  const std::string directory = testing::SourcePath("tests/cases/models/" + model);
  const std::string style =
      testing::SourcePath(seed % 2 == 0 ? "tests/cases/tokenizer/llama2" : "tests/cases/tokenizer/llama3");
  const std::string good = testing::GgufTwin(directory, {.tokenizer_directory = style, .pre = "llama-bpe"}).Bytes();
  size_t header_bytes = good.size();
  const GgufContent content = Read(good).value();
  for (const auto& [name, tensor] : content.tensors) header_bytes -= tensor.bytes.size();
  std::mt19937 random(seed);
  const testing::TempDir dir;
  int num_accepted = 0;
  for (int i = 0; i < count; ++i) {
    std::string bytes = good;
    const int num_changes = 1 + static_cast<int>(random() % 4);
    for (int change = 0; change < num_changes; ++change) {
      // Half of the changes hit the keys of numbers at the front, the counts among them.
      const size_t at = random() % (random() % 2 == 0 ? 1500 : header_bytes);
      constexpr unsigned char kValues[] = {0, 1, 0x7f, 0x80, 0xff};
      bytes[at] = static_cast<char>(random() % 2 == 0 ? kValues[random() % 5] : random());
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    const std::string path = dir.Write("x.gguf", bytes);
    bool is_accepted = true;
    for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
      is_accepted = IsOk(ReadModelFile(path, name).status(), path) && is_accepted;
    }
    is_accepted = IsOk(tokenizer::Tokenizer::Load(path).status(), path) && is_accepted;
    const absl::StatusOr<model::ModelConfig> config = model::LoadModelConfig(path);
    is_accepted = IsOk(config.status(), path) && HasItsWeights(path, *config) && is_accepted;
    num_accepted += is_accepted ? 1 : 0;
  }
  EXPECT_LT(num_accepted, count);
  EXPECT_GT(num_accepted, 0) << model;
}

TEST(GgufFile, MutationsEndInAnswersAndErrors) {
  ReadMutations("llama", 150, 1);
  ReadMutations("llama", 150, 2);
  for (const char* model : {"phi3-longrope", "glm4-moe", "gpt-oss"}) ReadMutations(model, 150, 3);
}

TEST(GgufFileLong, MutationsEndInAnswersAndErrors) {
  ReadMutations("llama", 5000, 11);
  ReadMutations("llama", 5000, 12);
  for (const testing::GgufFamily& family : testing::GgufFamilies()) ReadMutations(family.model, 500, 13);
}

}  // namespace
}  // namespace foretoken::gguf
