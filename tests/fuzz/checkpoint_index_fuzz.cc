// SPDX-License-Identifier: Apache-2.0
// Reads the input as the model.safetensors.index.json of a checkpoint with two shards. The tensors of an accepted
// checkpoint are those of the index, and each is in a shard.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/weights/checkpoint.h"
#include "kernels/check.h"
#include "tests/testing/models/safetensors_writer.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

struct Shards {
  Shards() {
    directory.Write(
        "1.safetensors",
        testing::SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", /*num_data_bytes=*/8));
    directory.Write("2.safetensors",
                    testing::SafetensorsBytes(R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                              R"("c":{"dtype":"U8","shape":[],"data_offsets":[4,5]}})",
                                              /*num_data_bytes=*/5));
  }
  const testing::TempDir directory;
};

}  // namespace
}  // namespace foretoken

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const foretoken::Shards shards;
  shards.directory.Write("model.safetensors.index.json", {reinterpret_cast<const char*>(data), size});
  const auto checkpoint = foretoken::weights::Checkpoint::Open(shards.directory.path());
  if (!checkpoint.ok()) {
    FT_CHECK(absl::IsInvalidArgument(checkpoint.status()) || absl::IsNotFound(checkpoint.status()));
    return 0;
  }
  for (const std::string& name : checkpoint->Names()) FT_CHECK(name == "a" || name == "b" || name == "c");
  FT_CHECK(checkpoint->num_bytes() <= 13);
  const auto tensor = checkpoint->Find("a", foretoken::kernels::Shape(2));
  FT_CHECK(tensor.ok() == checkpoint->Contains("a"));
  FT_CHECK(!checkpoint->Find("b", foretoken::kernels::Shape(3)).ok());
  return 0;
}
