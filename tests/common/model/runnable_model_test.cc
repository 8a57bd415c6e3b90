// SPDX-License-Identifier: Apache-2.0
// Loading a model onto a device. If this test fails, a server reads all weights before it finds out that the device is
// too small.
#include "common/model/runnable_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/memory_need.h"
#include "kernels/make_backend.h"
#include "tests/testing/fakes/forwarding_backend.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::model {
namespace {

// A device with this much memory, which records every allocation.
class SmallBackend final : public testing::ForwardingBackend {
 public:
  SmallBackend(std::unique_ptr<kernels::Backend> backend, size_t free_bytes, int* num_weights, bool keeps_all = false)
      : ForwardingBackend(std::move(backend)),
        free_bytes_(free_bytes),
        num_weights_(num_weights),
        keeps_all_(keeps_all) {}

  bool keeps_all_experts() const override { return keeps_all_; }

  std::optional<std::string> MemoryRefusal(const kernels::MemoryNeed& need) const override {
    if (need.weight_bytes + need.kv_bytes + need.pass_bytes <= free_bytes_) return std::nullopt;
    return "device: too little memory";
  }
  std::unique_ptr<kernels::Weight> PrepareWeight(const kernels::WeightSource& source) override {
    ++*num_weights_;
    return ForwardingBackend::PrepareWeight(source);
  }

 private:
  const size_t free_bytes_;
  int* const num_weights_;
  const bool keeps_all_;
};

TEST(LoadModel, RefusesADeviceOfTooLittleMemoryBeforeItTakesAny) {
  const LoadOptions options = {.max_rows = 16, .context = {.max_context_tokens = 64, .num_blocks = 8}};
  for (const size_t num_missing : {0, 1}) {
    OpenedModel opened = OpenModel({.directory = testing::SourcePath("deploy/demo/draft")}).value();
    std::unique_ptr<kernels::Backend> backend = kernels::MakeBackend({.num_threads = 1}).backend;
    const kernels::MemoryNeed need =
        LargestRankNeed(opened.config, 1, {.max_rows = 16, .max_logit_rows = 16, .max_positions = 64},
                        options.context.num_blocks, *backend);
    int num_weights = 0;
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::make_unique<SmallBackend>(
        std::move(backend), need.weight_bytes + need.kv_bytes + need.pass_bytes - num_missing, &num_weights));
    opened.ranks = parallel::RankGroup::Make("cpu", std::move(backends)).value();
    const absl::StatusOr<RunnableModel> model = LoadModel(std::move(opened), options, nullptr);
    EXPECT_EQ(model.ok(), num_missing == 0) << model.status();
    EXPECT_EQ(num_weights > 0, num_missing == 0);
    const absl::Status refusal = absl::ResourceExhaustedError("device: too little memory");
    EXPECT_EQ(model.status(), num_missing == 0 ? absl::OkStatus() : refusal);
  }
}

// A device that computes no larger models than this.
class BoundedBackend final : public testing::ForwardingBackend {
 public:
  BoundedBackend(std::unique_ptr<kernels::Backend> backend, kernels::ModelBounds bounds)
      : ForwardingBackend(std::move(backend)), bounds_(bounds) {}

  kernels::ModelBounds model_bounds() const override { return bounds_; }
  std::unique_ptr<kernels::Weight> PrepareWeight(const kernels::WeightSource& source) override {
    ADD_FAILURE() << "weights are read for a model that the device cannot compute";
    return ForwardingBackend::PrepareWeight(source);
  }

 private:
  const kernels::ModelBounds bounds_;
};

TEST(LoadModel, RefusesAModelThatIsTooLargeForTheDevicesKernels) {
  const auto load = [](const kernels::ModelBounds& bounds) {
    OpenedModel opened = OpenModel({.directory = testing::SourcePath("deploy/demo/draft")}).value();
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::make_unique<BoundedBackend>(kernels::MakeBackend({.num_threads = 1}).backend, bounds));
    opened.ranks = parallel::RankGroup::Make("cpu", std::move(backends)).value();
    return LoadModel(std::move(opened), {.max_rows = 16, .context = {.max_context_tokens = 64, .num_blocks = 8}},
                     nullptr)
        .status();
  };
  const ModelConfig config = LoadModelConfig(testing::SourcePath("deploy/demo/draft")).value();
  EXPECT_EQ(load({.vocab_size = config.vocab_size - 1}),
            absl::InvalidArgumentError(absl::StrCat("config.json: vocab_size: expected at most ", config.vocab_size - 1,
                                                    " on this device, got ", config.vocab_size)));
  EXPECT_EQ(load({.head_dim = config.head_dim - 1}),
            absl::InvalidArgumentError(absl::StrCat("config.json: head_dim: expected at most ", config.head_dim - 1,
                                                    " on this device, got ", config.head_dim)));
}

// The tokenizer is that of another model, which no part of this test asks.
TEST(LoadModel, NamesTheBoundOnExpertsWhereTheyDoNotFitAndItHelps) {
  struct Case {
    std::optional<size_t> max_expert_bytes;
    bool keeps_all = false;
    const char* hint = "";
  };
  const std::string directory = testing::SourcePath("tests/cases/models/mixtral");
  for (const auto& [max_expert_bytes, keeps_all, hint] :
       {Case{.hint = "; --expert_memory_mb keeps a part of the experts in memory"}, Case{.keeps_all = true},
        Case{.max_expert_bytes = 1 << 20}}) {
    OpenedModel opened = OpenModel({.directory = testing::SourcePath("deploy/demo/draft")}).value();
    opened.config = LoadModelConfig(directory).value();
    opened.weights = std::make_unique<quantization::OpenedWeights>(
        std::make_shared<const weights::Checkpoint>(weights::Checkpoint::Open(directory).value()));
    int num_weights = 0;
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::make_unique<SmallBackend>(kernels::MakeBackend({.num_threads = 1}).backend,
                                                      /*free_bytes=*/1000, &num_weights, keeps_all));
    opened.ranks = parallel::RankGroup::Make("cpu", std::move(backends)).value();
    const LoadOptions options = {
        .max_rows = 16, .context = {.max_context_tokens = 64, .num_blocks = 8}, .max_expert_bytes = max_expert_bytes};
    EXPECT_EQ(LoadModel(std::move(opened), options, nullptr).status(),
              absl::ResourceExhaustedError(std::string("device: too little memory") + hint));
  }
}

// The forms of a file's matrices are what an operator chose it for.
TEST(LoadModel, SaysHowTheMatricesAreStored) {
  const auto encode = [](const std::string& name, const std::vector<float>& values) {
    return name.find("embed") != std::string::npos ? testing::InF16(name, values) : testing::InBf16(name, values);
  };
  const testing::TempDir dir;
  const std::string path =
      dir.Write("twin.gguf", testing::GgufTwin(testing::SourcePath("deploy/demo/draft"), {.encode = encode}).Bytes());
  const absl::StatusOr<RunnableModel> model =
      LoadModel(OpenModel({.directory = path}).value(),
                {.max_rows = 16, .context = {.max_context_tokens = 64, .num_blocks = 8}}, [](size_t, size_t) {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->weight_use.formats,
              ::testing::ElementsAre(::testing::StartsWith("gguf BF16, interleaved heads of "), "BF16", "F16"));
}

}  // namespace
}  // namespace foretoken::model
