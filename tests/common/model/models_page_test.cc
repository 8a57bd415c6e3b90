// SPDX-License-Identifier: Apache-2.0
// The tables of docs/models.md, row by row, against what the tests read and what the readers refuse. If this test
// fails, the page promises a form that no test knows, or does not tell of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/mapped_file.h"
#include "common/model/config/families.h"
#include "nlohmann/json.hpp"
#include "tests/reference/gguf.h"
#include "tests/testing/models/quantized_layers.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using Cells = std::vector<std::string>;

// The rows of the first table below a heading, without its head.
std::vector<Cells> TableBelow(const std::string& heading) {
  const std::string page = base::ReadFile(testing::SourcePath("docs/models.md")).value();
  std::vector<Cells> rows;
  bool is_below = false;
  for (const auto line : absl::StrSplit(page, '\n')) {
    if (line == heading) is_below = true;
    if (!is_below) continue;
    if (absl::StartsWith(line, "| ")) {
      Cells& cells = rows.emplace_back();
      for (const auto cell : absl::StrSplit(absl::StripSuffix(absl::StripPrefix(line, "|"), "|"), '|')) {
        cells.emplace_back(absl::StripAsciiWhitespace(cell));
      }
    } else if (!rows.empty() && !absl::StartsWith(line, "|")) {
      break;
    }
  }
  if (!rows.empty()) rows.erase(rows.begin());
  return rows;
}

std::set<std::string> Items(const std::string& cell) { return absl::StrSplit(cell, ", "); }

TEST(ModelsPage, HasARowForEachFamilyAndATinyModelForEachRow) {
  std::set<std::string> on_page, known, tested;
  for (const Cells& row : TableBelow("## Families")) on_page.merge(Items(row[0]));
  for (const Family& family : kFamilies) known.insert(family.model_type);
  EXPECT_TRUE(on_page.erase("gemma3"));  // the wrapper of gemma3_text; checkpoint_fit_test.cc reads one
  EXPECT_EQ(on_page, known);
  for (const char* model : testing::kTinyModels) {
    tested.insert(ModelTypeName(LoadModelConfig(testing::SourcePath("tests/cases/models/") + model)->architecture));
  }
  EXPECT_EQ(tested, known);
  tested.clear();
  for (const char* model : testing::kFamilyModels) {  // the exactness tests run all of them
    tested.insert(ModelTypeName(LoadModelConfig(testing::SourcePath("tests/cases/models/") + model)->architecture));
  }
  EXPECT_EQ(tested, known);
}

// The row that a format of the tests belongs to.
std::string RowOf(const json& config) {
  const std::string method = config.at("quant_method"), format = config.value("format", "");
  if (method == "fp8" || method == "fbgemm_fp8" || method == "modelopt" || format == "float-quantized") return "FP8";
  if (method == "compressed-tensors") {
    return method + ", " + (absl::StartsWith(format, "mxfp4") ? std::string("MXFP4") : format);
  }
  const bool is_awq = absl::EndsWith(config.value("packing_format", method), "awq");
  return is_awq ? "AWQ" : "GPTQ";
}

TEST(ModelsPage, HasARowForEachFormatThatTheTestsRead) {
  // The last is the tiny model gpt-oss's.
  std::set<std::string> on_page, tested = {"plain", "GGUF", "MXFP4 of gpt-oss"};
  std::set<std::string> types;
  std::map<std::string, std::set<std::string>> methods_on_page, methods = {{"MXFP4 of gpt-oss", {"mxfp4"}}};
  for (const Cells& row : TableBelow("## Formats of weights")) {
    on_page.insert(row[0]);
    if (!row[1].empty()) methods_on_page[row[0]] = Items(row[1]);
    if (row[0] == "GGUF") types = Items(row[3]);
  }
  for (const testing::QuantizedFormat& format : testing::QuantizedFormats()) {
    tested.insert(RowOf(format.config));
    methods[RowOf(format.config)].insert(format.config.at("quant_method"));
  }
  EXPECT_EQ(on_page, tested);
  EXPECT_EQ(methods_on_page, methods);

  std::set<std::string> types_in_memory;
  std::set<std::string> tested_types = {"F32", "F16", "BF16"};  // gguf_model_test.cc's
  for (const reference::GgufType& type : reference::GgufTypes()) tested_types.insert(type.name);
  for (const Cells& row : TableBelow("## GGUF")) types_in_memory.merge(Items(row[0]));
  EXPECT_EQ(types, tested_types);
  EXPECT_EQ(types_in_memory, tested_types);
}

// A configuration that declares what a row refuses, and the key that the one line names.
struct Refused {
  const char* row;
  const char* declared;
  const char* key;
};

TEST(ModelsPage, RefusesInOneLineWhatItSaysIsRefused) {
  static constexpr Refused kRefused[] = {
      {"NVFP4, bitsandbytes", R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"})", "format"},
      {"NVFP4, bitsandbytes", R"({"quant_method":"bitsandbytes","load_in_4bit":true})", "quant_method"},
      {"NVFP4, bitsandbytes", R"({"quant_method":"modelopt","quant_algo":"NVFP4"})", "quant_algo"},
      {"GPTQ with 2 or 3 bits", R"({"quant_method":"gptq","bits":2})", "bits"},
      {"GPTQ with 2 or 3 bits", R"({"quant_method":"gptq","bits":3})", "bits"},
      {"GPTQ with 2 or 3 bits", R"({"quant_method":"auto-round","bits":2})", "bits"},
      {"Marlin layouts, AWQ gemv", R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})",
       "checkpoint_format"},
      {"Marlin layouts, AWQ gemv", R"({"quant_method":"awq","bits":4,"version":"gemv"})", "version"},
      {"AutoRound in other layouts than GPTQ's and AWQ's",
       R"({"quant_method":"auto-round","bits":4,"packing_format":"auto_round:llm_compressor"})", "packing_format"},
      {"AutoRound in other layouts than GPTQ's and AWQ's",
       R"({"quant_method":"auto-round","bits":4,"data_type":"mx_fp"})", "data_type"},
      {"sparse storage, transforms at run time",
       R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"}})", "sparsity_config"},
      {"sparse storage, transforms at run time",
       R"({"quant_method":"compressed-tensors","transform_config":{"config_groups":{"R1":{}}}})", "transform_config"},
      {"FP8 in E5M2", R"({"quant_method":"fp8","fmt":"e5m2"})", "fmt"},
  };
  std::set<std::string> on_page, tested;
  for (const Cells& row : TableBelow("## What is refused")) {
    // The rows of GGUF files are tested in gguf_file_test.cc and gguf_model_test.cc, and those of drafters in
    // tests/proposer_service/features.
    if (!absl::StartsWith(row[0], "GGUF:") && !absl::StrContains(row[0], "drafters")) on_page.insert(row[0]);
  }
  json config = json::parse(base::ReadFile(testing::SourcePath("tests/cases/models/llama/config.json")).value());
  for (const Refused& refused : kRefused) {
    tested.insert(refused.row);
    config["quantization_config"] = json::parse(refused.declared);
    const std::string error = ParseModelConfig(config.dump(), "config.json").status().ToString();
    EXPECT_THAT(error, HasSubstr("config.json: quantization_config")) << refused.declared;
    EXPECT_THAT(error, HasSubstr(refused.key)) << refused.declared;
    EXPECT_THAT(error, HasSubstr("expects")) << refused.declared;
    EXPECT_THAT(error, Not(HasSubstr("\n"))) << refused.declared;
  }
  EXPECT_EQ(on_page, tested);
}

}  // namespace
}  // namespace foretoken::model
