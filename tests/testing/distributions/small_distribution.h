// SPDX-License-Identifier: Apache-2.0
// Distributions over a vocabulary of a few tokens, small enough to store completely: a tiny model's distribution after
// every path, and the distribution of the sequences that a process emits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {

// Numbers for the paths of up to `max_len` tokens of a vocabulary of `num_tokens`. The empty path is 0, and the
// children of a path have consecutive numbers.
struct PathNumbering {
  int32_t num_tokens = 0;
  int32_t max_len = 0;

  size_t NumberOf(std::span<const int32_t> path) const;
  size_t num_paths() const;
};

enum class DistributionKind {
  kDense,      // every token has a probability above 0
  kWithZeros,  // some tokens have probability 0
  kPoint,      // one token has probability 1, as at temperature 0
};

// A model's distribution of the next token after every path. The values are floats and need not add up to 1.
class SmallDistribution {
 public:
  static SmallDistribution Random(const PathNumbering& paths, DistributionKind kind, RandomValues& random);
  // The same row after every path.
  static SmallDistribution Constant(const PathNumbering& paths, std::span<const double> row);

  const PathNumbering& paths() const { return paths_; }
  int32_t num_tokens() const { return paths_.num_tokens; }
  std::span<const double> At(std::span<const int32_t> path) const;
  std::span<double> At(std::span<const int32_t> path);

 private:
  explicit SmallDistribution(const PathNumbering& paths) : paths_(paths), rows_(paths.num_paths() * paths.num_tokens) {}

  PathNumbering paths_;
  std::vector<double> rows_;  // [paths, V]
};

// Zeroes all but the `num_kept` largest values of each row. Ties go to the lower id.
SmallDistribution Truncated(const SmallDistribution& distribution, int32_t num_kept);
// Zeroes every token that has a probability in `other`, unless no token would be left.
SmallDistribution Without(const SmallDistribution& distribution, const SmallDistribution& other);

// The distribution of a process over the sequences of `target`'s longest length. Shorter outcomes continue with the
// target's distribution, like the following steps.
class EmittedDistribution {
 public:
  explicit EmittedDistribution(const SmallDistribution& target) : target_(target), mass_(target.paths().num_paths()) {}

  // Ignores tokens beyond the longest length. An outcome with a token outside the vocabulary belongs to no sequence, so
  // its probability is missing from the sum.
  void Add(std::span<const int32_t> emitted, double probability);

  // Half the sum over all sequences of |emitted distribution - target distribution|, including missing probability.
  // This is the fraction of wrong samples.
  double Error() const;
  // The same distance, to another emitted distribution with this target.
  double Distance(const EmittedDistribution& other) const;
  // The target's probabilities of the sequences of the longest length, in the order of their numbers.
  std::vector<double> TargetProbs() const;
  // The probability of this first token.
  double FirstToken(int32_t token_id) const;

 private:
  // Returns the probability of every path, from the probabilities of the paths at which outcomes end. [paths]
  std::vector<double> PassedOn(std::vector<double> mass) const;

  const SmallDistribution& target_;
  std::vector<double> mass_;  // [paths] probability of the outcomes that end there
};

}  // namespace foretoken::testing
