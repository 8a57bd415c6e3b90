# SPDX-License-Identifier: Apache-2.0
# Every outside library, each found the way its distribution package ships it.
option(FORETOKEN_CUDA "Build the CUDA backend" OFF)
option(FORETOKEN_STATIC "Link outside libraries statically where they have archives" OFF)
set(FORETOKEN_SANITIZER "" CACHE STRING "Sanitizers to build with, as -fsanitize= takes them")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # What another build folder or another clone has compiled is found again: paths are hashed as relative ones. The cache
  # reads what a file includes from the compiler's own list, and does not preprocess every new file once more.
  # The sloppiness is what it asks for to keep precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

if(FORETOKEN_CUDA)
  include(Cuda)
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)
find_package(boost_headers CONFIG REQUIRED)  # no target has it: it needs no flags, and its own would be those of every user
find_package(boost_context CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(MINIZIP REQUIRED IMPORTED_TARGET minizip)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
# Kernels keep vectors in arrays, so those whose size only the running machine knows are out: Arm takes NEON.
target_compile_definitions(PkgConfig::HWY INTERFACE
  "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128|HWY_RVV)")

include(Sources)

if(FORETOKEN_STATIC)
  include(Static)
endif()
