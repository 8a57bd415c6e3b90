// SPDX-License-Identifier: Apache-2.0
// The parts of the time that loading a model took, for a line of the log.
#pragma once

#include <string>

#include "common/model/weight_reader.h"

namespace foretoken::model {

// Seconds.
struct LoadTimes {
  double tokenizer = 0;
  double weights = 0;
  ReadTimes reading;       // of the weights, summed over the threads' own clocks
  double transformer = 0;  // K/V, tables, and memory for passes
};

// "tokenizer 0.21 s; weights 1.04 s, 2.47 GB at 2.38 GB/s (reading 25 %, packing 51 %, digest 15 %, releasing pages 9
// %); K/V and tables 0.30 s"
std::string Describe(const LoadTimes& times);

}  // namespace foretoken::model
