// SPDX-License-Identifier: Apache-2.0
// The cut of a model for tensor-parallel ranks. If this test fails, ranks miss or repeat parts of a model, or an
// impossible degree is not refused.
#include "common/model/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace foretoken::model {
namespace {

using ::testing::HasSubstr;

TEST(ShareOf, CoversEverythingOnceInSharesThatDifferByOneAtMost) {
  for (const int64_t count : {0, 1, 4, 7, 301, 128256}) {
    for (const int32_t num_ranks : {1, 2, 3, 4, 64}) {
      int64_t next = 0, smallest = std::numeric_limits<int64_t>::max(), largest = 0;
      for (int32_t rank = 0; rank < num_ranks; ++rank) {
        const kernels::IndexRange share = ShareOf(count, {.rank = rank, .num_ranks = num_ranks});
        EXPECT_EQ(share.begin, next);
        next = share.end;
        smallest = std::min(smallest, share.size());
        largest = std::max(largest, share.size());
      }
      EXPECT_EQ(next, count);
      EXPECT_LE(largest - smallest, 1);
    }
  }
}

ModelConfig Sizes() {
  return {.intermediate_size = 96, .num_heads = 8, .num_kv_heads = 4, .head_dim = 16, .vocab_size = 301};
}

TEST(CheckTensorParallel, AcceptsDegreesThatDivideHeadsAndFfnWithAnyVocabulary) {
  for (const int32_t num_ranks : {1, 2, 4}) EXPECT_TRUE(CheckTensorParallel(Sizes(), num_ranks).ok()) << num_ranks;
}

TEST(CheckTensorParallel, RefusesByNameWithTheNumbers) {
  const auto message = [](const ModelConfig& config, int32_t num_ranks) {
    return std::string(CheckTensorParallel(config, num_ranks).message());
  };
  EXPECT_THAT(message(Sizes(), 3), HasSubstr("--tensor_parallel: expected a divisor of the model's "
                                             "num_attention_heads 8, got 3"));
  EXPECT_THAT(message(Sizes(), 8), HasSubstr("num_key_value_heads 4, got 8"));
  EXPECT_THAT(message(Sizes(), 0), HasSubstr("got 0"));
  ModelConfig odd_ffn = Sizes();
  odd_ffn.intermediate_size = 98;
  EXPECT_THAT(message(odd_ffn, 4), HasSubstr("intermediate_size 98, got 4"));
  ModelConfig few_tokens = Sizes();
  few_tokens.vocab_size = 3;
  EXPECT_THAT(message(few_tokens, 4), HasSubstr("expected at most the model's vocab_size 3, got 4"));
}

}  // namespace
}  // namespace foretoken::model
