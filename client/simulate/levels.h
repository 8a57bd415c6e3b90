// SPDX-License-Identifier: Apache-2.0
// Reads a profile between and beyond its levels. `num_sequences` is at least 1.
#pragma once

#include <span>
#include <vector>

#include "client/simulate/profile.h"

namespace foretoken::client {

// The mean time of a step: on the line between the nearest levels. Beyond the last level, on the line through the last
// two, but never falling.
double StepMs(std::span<const ProfileLevel> levels, int32_t num_sequences);

// [k]: the share of a sequence's steps that accept k guesses, between the nearest levels. Beyond the last level, the
// last level's.
std::vector<double> AcceptedLengths(std::span<const ProfileLevel> levels, int32_t num_sequences);

}  // namespace foretoken::client
