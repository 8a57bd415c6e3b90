// SPDX-License-Identifier: Apache-2.0
// Every file includes only what its room may include: its own room, and the rooms that its CMake target depends on.
// Without this test an include in the wrong direction compiles, and the next engineer can no longer change one room
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kEveryStem[] = "*";
// Folders of headers that the build makes from the protos.
const std::set<std::string> kGenerated = {"foretoken/v1", "grpc/reflection/v1alpha", "vllm"};
constexpr char kProtoRoom[] = "foretoken_proto";

// Rooms, and which rooms each may include.
struct House {
  std::map<std::string, std::string> rooms;  // by FOLDER/STEM, where the stem may be *
  std::map<std::string, std::set<std::string>> dependencies;
};

House Parse(std::istream& lines) {
  House house;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    for (absl::string_view stem : absl::StrSplit(fields.at(2), ',')) {
      house.rooms[absl::StrCat(fields.at(1), "/", stem)] = fields.at(0);
    }
    std::set<std::string>& dependencies = house.dependencies[fields.at(0)];
    for (absl::string_view name : absl::StrSplit(fields.at(3), ',', absl::SkipEmpty())) dependencies.emplace(name);
  }
  return house;
}

House OurHouse() {
  std::ifstream lines(FORETOKEN_ROOMS);
  return Parse(lines);
}

// The room of a file, or nothing for a file that is not ours.
std::string RoomOf(const House& house, const std::filesystem::path& file) {
  const std::string folder = file.parent_path().string();
  if (kGenerated.contains(folder)) return kProtoRoom;
  for (const std::string& stem : {file.stem().string(), std::string(kEveryStem)}) {
    const auto room = house.rooms.find(folder + "/" + stem);
    if (room != house.rooms.end()) return room->second;
  }
  return "";
}

std::set<std::string> Closure(const House& house, const std::string& room) {
  std::set<std::string> closure;
  std::vector<std::string> open = {room};
  while (!open.empty()) {
    const std::string next = open.back();
    open.pop_back();
    if (!closure.insert(next).second) continue;
    const auto dependencies = house.dependencies.find(next);
    if (dependencies == house.dependencies.end()) continue;
    open.insert(open.end(), dependencies->second.begin(), dependencies->second.end());
  }
  return closure;
}

std::vector<std::string> WrongIncludes(const House& house, const std::filesystem::path& file, std::istream& source) {
  static const std::regex include(R"re(\s*#\s*include\s*"([^"]+)".*)re");
  const std::string room = RoomOf(house, file);
  const std::set<std::string> allowed = Closure(house, room);
  std::vector<std::string> wrong;
  std::smatch match;
  for (std::string line; std::getline(source, line);) {
    if (!std::regex_match(line, match, include)) continue;
    if (match[1].str().starts_with("tests/")) wrong.push_back(absl::StrCat(room, " includes ", match[1].str()));
    const std::string included = RoomOf(house, std::filesystem::path(match[1].str()));
    if (!included.empty() && !allowed.contains(included)) {
      wrong.push_back(absl::StrCat(room, " includes ", match[1].str(), " of ", included));
    }
  }
  return wrong;
}

bool IsSource(const std::filesystem::path& file) {
  static const std::set<std::string> extensions = {".cc", ".h", ".cu", ".cuh", ".inc"};
  return extensions.contains(file.extension().string());
}

// The sources of the product, from the root of the repository.
std::vector<std::filesystem::path> Sources() {
  std::vector<std::filesystem::path> sources;
  const std::filesystem::path root = FORETOKEN_SOURCE_DIR;
  for (const char* floor : {"kernels", "common", "proposer_service", "verifier_service", "client"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / floor)) {
      if (IsSource(entry.path())) sources.push_back(entry.path().lexically_relative(root));
    }
  }
  return sources;
}

TEST(Rooms, IncludeOnlyWhatTheirTargetsDependOn) {
  const House house = OurHouse();
  const std::vector<std::filesystem::path> sources = Sources();
  ASSERT_GT(sources.size(), 300);
  for (const std::filesystem::path& file : sources) {
    EXPECT_NE(RoomOf(house, file), "") << file << " has no room";
    std::ifstream source(std::filesystem::path(FORETOKEN_SOURCE_DIR) / file);
    EXPECT_THAT(WrongIncludes(house, file, source), IsEmpty()) << file;
  }
}

// `./dev fuzz` compiles the product with Debian's Clang 14, which rejects the views of Debian's C++ library and those
// of its algorithms that return a subrange.
TEST(Sources, HaveNoViewsSoThatTheFuzzTargetsCompile) {
  const std::regex view(
      "std::(views|ranges::(subrange|equal_range|find_end|partition|remove|remove_if|rotate|search|"
      "search_n|stable_partition|unique))\\b");
  for (const std::filesystem::path& file : Sources()) {
    std::ifstream source(std::filesystem::path(FORETOKEN_SOURCE_DIR) / file);
    const std::string text((std::istreambuf_iterator<char>(source)), {});
    std::smatch found;
    EXPECT_FALSE(std::regex_search(text, found, view)) << file << ": " << found.str();
  }
}

TEST(Rooms, DoNotDependOnThemselves) {
  const House house = OurHouse();
  for (const auto& [room, dependencies] : house.dependencies) {
    for (const std::string& dependency : dependencies) {
      EXPECT_FALSE(Closure(house, dependency).contains(room)) << room << " and " << dependency;
    }
  }
}

TEST(Rooms, AreNotCrowded) {
  std::map<std::string, int> num_files;
  const std::filesystem::path root = FORETOKEN_SOURCE_DIR;
  for (const char* floor : {"kernels", "common", "proposer_service", "verifier_service", "client", "tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / floor)) {
      const std::string folder = entry.path().parent_path().string();
      if (entry.is_regular_file() && !absl::StrContains(folder, "/corpus/")) ++num_files[folder];  // inputs of fuzzers
    }
  }
  for (const auto& [folder, count] : num_files) EXPECT_LE(count, 40) << folder;
}

TEST(Rooms, AnIncludeInTheWrongDirectionIsFound) {
  std::istringstream lines(
      "top a/top main bottom,side\n"
      "side a/side * bottom\n"
      "bottom a/bottom * \n"
      "face a/bottom face bottom\n");
  const House house = Parse(lines);
  std::istringstream source(
      "#include \"a/bottom/x.h\"\n"
      "#include \"a/top/main.h\"\n"
      "# include \"a/bottom/face.h\"  // the room of one stem\n"
      "#include \"absl/strings/string_view.h\"\n"
      "#include \"tests/testing/paths.h\"\n");
  EXPECT_THAT(WrongIncludes(house, "a/side/y.cc", source),
              ElementsAre("side includes a/top/main.h of top", "side includes a/bottom/face.h of face",
                          "side includes tests/testing/paths.h"));
  std::istringstream generated("#include \"foretoken/v1/generation.pb.h\"\n");
  EXPECT_THAT(WrongIncludes(house, "a/side/y.cc", generated), ElementsAre(HasSubstr("of foretoken_proto")));
}

}  // namespace
}  // namespace foretoken
