# SPDX-License-Identifier: Apache-2.0
# The CUDA toolkit: the one in .cuda, which `./dev setup --cuda` brings, or else the machine's. Only its compiler and its
# runtime, which is linked statically, so the machine that runs a program needs a driver and nothing else. Of NCCL the
# build needs the header: programs load the library where several GPUs share a model.
set(toolkit ${CMAKE_SOURCE_DIR}/.cuda/nvidia/cu13)
if(NOT CMAKE_CUDA_COMPILER AND EXISTS ${toolkit}/bin/nvcc)
  set(CMAKE_CUDA_COMPILER ${toolkit}/bin/nvcc)
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "FORETOKEN_CUDA: no nvcc on this machine; ./dev setup --cuda brings one")
endif()
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "FORETOKEN_CUDA: ${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, expected 13.0 or "
    "newer; ./dev setup --cuda brings one")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
find_path(NCCL_INCLUDE_DIR nccl.h PATHS ${CMAKE_SOURCE_DIR}/.cuda/nvidia/nccl/include)
if(NOT NCCL_INCLUDE_DIR)
  message(FATAL_ERROR "FORETOKEN_CUDA: no nccl.h on this machine; ./dev setup --cuda brings one")
endif()
# The toolkit's headers, for rooms and tests that include them. All other files are compiled as in a build without CUDA, so
# the compiler's cache has them for both.
add_library(foretoken_cuda_toolkit INTERFACE)
target_include_directories(foretoken_cuda_toolkit SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
  ${NCCL_INCLUDE_DIR})
