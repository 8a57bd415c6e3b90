// SPDX-License-Identifier: Apache-2.0
#include "kernels/free_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "kernels/control_groups.h"

namespace foretoken::kernels {
namespace {

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (!(file >> number)) return std::nullopt;  // "max" is no number
  return number;
}

// The number after a name at the beginning of a line.
std::optional<int64_t> ReadLine(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t number = 0;
    if (words >> word >> number && word == name) return number;
  }
  return std::nullopt;
}

std::optional<int64_t> FreeIn(const std::string& group) {
  const std::optional<int64_t> most = ReadNumber(group + "/memory.max");
  const std::optional<int64_t> used = ReadNumber(group + "/memory.current");
  if (!most || !used) return std::nullopt;
  const std::string stat = group + "/memory.stat";
  const int64_t of_files = ReadLine(stat, "active_file").value_or(0) + ReadLine(stat, "inactive_file").value_or(0);
  return std::max<int64_t>(*most - std::max<int64_t>(*used - of_files, 0), 0);
}

}  // namespace

std::optional<int64_t> FreeMemory(const std::string& root) {
  std::optional<int64_t> least;
  const auto add = [&](const std::optional<int64_t>& bytes) {
    if (bytes) least = std::min(least.value_or(*bytes), *bytes);
  };
  if (const auto kilobytes = ReadLine(root + "/proc/meminfo", "MemAvailable:")) add(*kilobytes * 1024);
  for (const std::string& group : ControlGroups(root)) add(FreeIn(group));
  return least;
}

std::optional<int64_t> WholeMemory(const std::string& root) {
  const std::string machine = root + "/proc/meminfo";
  const std::optional<int64_t> kilobytes = ReadLine(machine, "MemTotal:");
  const int64_t swap = ReadLine(machine, "SwapTotal:").value_or(0) * 1024;
  std::optional<int64_t> least;
  if (kilobytes) least = *kilobytes * 1024 + swap;
  for (const std::string& group : ControlGroups(root)) {
    const std::optional<int64_t> most = ReadNumber(group + "/memory.max");
    if (!most) continue;
    const int64_t whole = *most + std::min(ReadNumber(group + "/memory.swap.max").value_or(swap), swap);
    least = std::min(least.value_or(whole), whole);
  }
  return least;
}

}  // namespace foretoken::kernels
