// SPDX-License-Identifier: Apache-2.0
// Distributions over a vocabulary of a few tokens, small enough to be written down whole: what a tiny model says after
// every path, and what sequences a process emits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {

// Paths of up to `max_len` tokens of a vocabulary of `num_tokens`, numbered: the empty one is 0, and the children of a
// path follow each other.
struct PathNumbering {
  int32_t num_tokens = 0;
  int32_t max_len = 0;

  size_t NumberOf(std::span<const int32_t> path) const;
  size_t num_paths() const;
};

enum class DistributionKind {
  kDense,      // every token has a chance
  kWithZeros,  // some have none; at least one has
  kPoint,      // one token has all of it: temperature 0
};

// What a model says of the next token after every path. The values are floats, and need not add up to 1.
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

// Zeroes all but the `num_kept` largest values of each row, ties to the lower id.
SmallDistribution Truncated(const SmallDistribution& distribution, int32_t num_kept);
// Zeroes every token that `other` gives a chance, where that leaves any.
SmallDistribution Without(const SmallDistribution& distribution, const SmallDistribution& other);

// What is emitted, as a distribution over the sequences of `target`'s longest length. Outcomes that emit less go on by
// the target's distribution, as the steps that follow would.
class EmittedDistribution {
 public:
  explicit EmittedDistribution(const SmallDistribution& target) : target_(target), mass_(target.paths().num_paths()) {}

  // What is emitted beyond the longest length is not looked at. A token outside of the vocabulary is part of no
  // sequence: its probability is missing.
  void Add(std::span<const int32_t> emitted, double probability);

  // Half the sum over all sequences of |emitted distribution - target distribution|, and what is missing: the part of
  // all samples that is not the target's.
  double Error() const;
  // The same from another emitted distribution with this target.
  double Distance(const EmittedDistribution& other) const;
  // Of the sequences of the target's longest length, in the order of their numbers.
  std::vector<double> TargetProbs() const;
  // The chance that the first token is this one.
  double FirstToken(int32_t token_id) const;

 private:
  // The chance of every path, given that of those where outcomes end. [paths]
  std::vector<double> PassedOn(std::vector<double> mass) const;

  const SmallDistribution& target_;
  std::vector<double> mass_;  // [paths] of outcomes that end there
};

}  // namespace foretoken::testing
