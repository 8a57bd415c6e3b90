// SPDX-License-Identifier: Apache-2.0
// What a simulation must know of one verifier with its proposers, as `foretoken bench --profile` measures it: how long
// a step takes with so many sequences, how many guesses it accepts, how long a prompt and a proposal take.
//
//   ProfileBuilder builder;
//   for each run: builder.Add(generations, /*is_speculative=*/true);
//   FT_ASSIGN_OR_RETURN(const Profile profile, builder.Build());
//   file << ToJson(profile);
//
// Units: milliseconds, tokens.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/timed_generation.h"
#include "nlohmann/json_fwd.hpp"

namespace foretoken::client {

// Steps that computed no prompt, with this number of sequences.
struct ProfileLevel {
  int32_t num_sequences = 0;
  int64_t num_steps = 0;
  double step_ms = 0;                    // mean, from the end of the step before
  std::vector<double> accepted_lengths;  // [k]: share of a sequence's steps that accepted k guesses
};

// Steps without guesses that computed about this number of rows: one per decoding sequence and one per prompt token.
struct ProfileRows {
  double num_rows = 0;
  double step_ms = 0;  // mean
};

// The lengths of one request.
struct ProfileRequest {
  int32_t prompt_tokens = 0;  // that were computed, not found in the prefix cache; at least 1
  int32_t output_tokens = 0;
};

// A proposer of the verifier, by its method.
struct ProfileProposer {
  std::string name;
  double proposal_ms = 0;  // from the question to the tree, without any other work; the median
};

struct Profile {
  std::string model;
  std::vector<ProfileLevel> speculative, plain;  // rising numbers of sequences
  std::vector<ProfileRows> rows;                 // rising numbers of rows, and times that never fall
  std::vector<ProfileProposer> proposers;        // that answered, in alphabetical order
  std::vector<ProfileRequest> requests;
};

// INVALID_ARGUMENT names the field.
absl::StatusOr<Profile> ParseProfile(absl::string_view json);
nlohmann::ordered_json ToJson(const Profile& profile);

class ProfileBuilder {
 public:
  // Adds the requests of a run. A request with step reports has one for each of its steps; not every request needs
  // them. All runs send the same requests, so the lengths are those of the first run. Each run must be a tenant of its
  // own. Otherwise it finds the prompts of earlier runs in the prefix cache, and proposers remember their outputs.
  void Add(std::span<const TimedGeneration> generations, bool is_speculative);
  // FAILED_PRECONDITION if a run has no report: the server does not give them.
  absl::StatusOr<Profile> Build(const std::string& model) const;

 private:
  struct Step {
    int32_t num_sequences = 0, num_rows = 0, num_prompt_rows = 0, num_tree_rows = 0;
    double ms = 0;
    std::vector<int32_t> accepted_lengths;  // one per reported sample that drew
  };
  struct Level {
    int64_t num_steps = 0;
    double ms = 0;
    std::map<int32_t, int64_t> accepted_lengths;
  };
  struct RowsBucket {
    int64_t num_steps = 0, num_rows = 0;
    double ms = 0;
  };
  using LevelsOfRun = std::map<int32_t, Level>;  // by number of sequences

  static std::vector<ProfileLevel> Levels(const LevelsOfRun& run);
  std::vector<ProfileRows> Rows() const;

  LevelsOfRun speculative_, plain_;
  std::map<int32_t, RowsBucket> rows_;
  std::map<std::string, std::vector<double>> proposal_ms_;  // by proposer, of steps with one sequence
  std::vector<ProfileRequest> requests_;
};

}  // namespace foretoken::client
