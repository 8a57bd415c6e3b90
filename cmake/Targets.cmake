# SPDX-License-Identifier: Apache-2.0
# One library per folder, one test binary per test folder.

add_library(foretoken_options INTERFACE)
target_include_directories(foretoken_options INTERFACE ${CMAKE_SOURCE_DIR})
# Designated initialisers leave fields at their defaults on purpose.
set(warnings -Wall -Wextra -Werror -Wno-sign-compare -Wno-psabi -Wno-missing-field-initializers)
# Clang, which only the fuzz build uses, knows other warnings, and the code is not written for them.
target_compile_options(foretoken_options INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:${warnings}>")
# A tenth of the compile time: GCC collects garbage in its own memory from 500 MB on, and not from 100 MB on.
target_compile_options(foretoken_options INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=500000>")
if(FORETOKEN_CUDA)
  list(JOIN warnings "," host_warnings)
  target_compile_options(foretoken_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_warnings};--Werror=all-warnings>")
endif()
if(FORETOKEN_SANITIZER)
  # GCC takes instrumented optionals for uninitialised; the other builds give that warning where it is right.
  target_compile_options(foretoken_options INTERFACE -fsanitize=${FORETOKEN_SANITIZER} -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(foretoken_options INTERFACE -fsanitize=${FORETOKEN_SANITIZER})
  if(FORETOKEN_SANITIZER STREQUAL "thread")
    # Protobuf's headers add members to classes under ThreadSanitizer, which the library, built without it, does not
    # know; so they are not told. The standard library is: its shared_ptr then counts in a way that can be followed.
    set(untold -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
    target_compile_options(foretoken_options INTERFACE ${untold})
    # Of gRPC's templates the linker may take the copies in the generated code, and their atomics must be seen, too.
    set(FORETOKEN_GENERATED_CODE_OPTIONS -fsanitize=thread -fno-omit-frame-pointer ${untold})
    # Abseil's flags are read with a fence, which ThreadSanitizer does not follow; whoever reads flags is not warned.
    set_property(TARGET absl::flags APPEND PROPERTY INTERFACE_COMPILE_OPTIONS -Wno-tsan)
    # Asio's fences, likewise. Its locks order what our handlers do.
    target_compile_definitions(foretoken_options INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

# What every executable is linked with.
add_library(foretoken_executable INTERFACE)
target_link_libraries(foretoken_executable INTERFACE foretoken_options)
if(FORETOKEN_SANITIZER)
  set(sources ${CMAKE_SOURCE_DIR}/tests/sanitizers/options.cc)
  if(FORETOKEN_SANITIZER STREQUAL "thread")
    list(APPEND sources ${CMAKE_SOURCE_DIR}/tests/sanitizers/absl_mutex_for_tsan.cc
      ${CMAKE_SOURCE_DIR}/tests/sanitizers/grpc_for_tsan.cc ${CMAKE_SOURCE_DIR}/tests/sanitizers/spdlog_for_tsan.cc)
  endif()
  add_library(foretoken_sanitizers OBJECT ${sources})
  target_link_libraries(foretoken_sanitizers PUBLIC foretoken_options absl::synchronization gRPC::grpc spdlog::spdlog
    ${CMAKE_DL_LIBS})
  target_sources(foretoken_executable INTERFACE $<TARGET_OBJECTS:foretoken_sanitizers>)
  target_link_libraries(foretoken_executable INTERFACE absl::synchronization gRPC::grpc spdlog::spdlog
    ${CMAKE_DL_LIBS})
endif()

# A room is the files of one target. The file rooms.txt of the build lists the rooms: tests/rooms/rooms_test.cc checks with it
# that a file includes only its own room and the rooms that its target depends on. A line holds the target, the folder, the
# stems of the room's files (* where it has all files of the folder that no other room names), and the dependencies.
set_property(GLOBAL PROPERTY FORETOKEN_ROOMS "")
function(foretoken_room name stems)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(FILTER ARGN INCLUDE REGEX "^foretoken_")
  list(JOIN stems "," stems)
  list(JOIN ARGN "," dependencies)
  set_property(GLOBAL APPEND_STRING PROPERTY FORETOKEN_ROOMS "${name} ${folder} ${stems} ${dependencies}\n")
endfunction()

# foretoken_library(NAME DEPS ... STEMS ...): a room as a static library: the files with these stems, or every .cc of the
# current folder but main.cc and those that an earlier room of the folder named.
function(foretoken_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;STEMS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  get_property(named DIRECTORY PROPERTY FORETOKEN_NAMED_SOURCES)
  list(REMOVE_ITEM sources ${named} ${CMAKE_CURRENT_SOURCE_DIR}/main.cc)
  if(ARG_STEMS)
    set(sources)
    foreach(stem ${ARG_STEMS})
      file(GLOB source CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${stem}.cc)  # a header may stand alone
      list(APPEND sources ${source})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY FORETOKEN_NAMED_SOURCES ${sources})
    foretoken_room(${name} "${ARG_STEMS}" ${ARG_DEPS})
  else()
    foretoken_room(${name} "*" ${ARG_DEPS})
  endif()
  if(sources)
    foretoken_join(sources ${name})
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC foretoken_options ${ARG_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE foretoken_options ${ARG_DEPS})
  endif()
endfunction()

# foretoken_binary(NAME DEPS ...): main.cc of the current folder.
function(foretoken_binary name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  foretoken_room(${name} main ${ARG_DEPS})
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/main.cc)
  target_link_libraries(${name} PRIVATE foretoken_executable ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# foretoken_precompile_headers(NAME OWNER): GoogleTest's headers and those of Abseil that nearly every test reads are half
# of what a small test compiles. The target OWNER compiles them once, and the targets that have its options and
# definitions, and maybe more, read that.
function(foretoken_precompile_headers name owner)
  # GCC forgets which of these headers are the system's, and warns of the standard library's strings. ccache asks for
  # -fpch-preprocess.
  target_compile_options(${name} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess;-Wno-array-bounds>"
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow;-Wno-stringop-overread>")
  if(name STREQUAL owner)
    target_precompile_headers(${name} PRIVATE <gmock/gmock.h> <gtest/gtest.h> <filesystem> <thread>
      <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/synchronization/mutex.h>
      <absl/time/clock.h>)
  else()
    target_precompile_headers(${name} REUSE_FROM ${owner})
  endif()
endfunction()

# Checks of every pointer made half of the time that tests take to compile. The libraries that they test keep these checks;
# functions in headers may lose them. This comes behind the option that it takes from, as the last library.
add_library(foretoken_test_checks INTERFACE)
if(FORETOKEN_SANITIZER MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(foretoken_test_checks INTERFACE -fno-sanitize=alignment,null,object-size,vptr)
endif()

# foretoken_test(NAME FOLDER DEPS ... LABELS ... LONG_LABEL ...): every *_test.cc of tests/FOLDER and of its rooms as one
# binary, a ctest entry per case. A folder named cuda is left out: its tests run on a GPU, or on an emulated one.
# Suites whose names end in Long have labels that end in long: they are not part of `./dev test`. It is one label each,
# because a list does not survive gtest_discover_tests; ctest's -L and -LE look for a part of a label. LONG_LABEL names
# another one, if a run of LABELS must not run the long ones, too.
function(foretoken_test name folder)
  cmake_parse_arguments(ARG "" "LONG_LABEL" "DEPS;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cc
    ${CMAKE_SOURCE_DIR}/tests/${folder}/*/*_test.cc)
  list(FILTER sources EXCLUDE REGEX "/cuda/")
  if(NOT sources)
    return()
  endif()
  foretoken_join(sources ${name})
  add_executable(${name} ${sources})
  target_compile_options(${name} PRIVATE "$<$<CONFIG:Release>:-O1>")  # tests compile for longer than they compute
  target_link_libraries(${name} PRIVATE foretoken_executable foretoken_testing ${ARG_DEPS} GTest::gtest GTest::gmock
    GTest::gtest_main foretoken_test_checks)
  foretoken_precompile_headers(${name} base_test)
  include(GoogleTest)
  set(timeout 300)
  if(FORETOKEN_SANITIZER)
    set(timeout 900)  # a test of a minute takes several there
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${folder}/" TEST_FILTER "-*Long.*" NO_PRETTY_VALUES
    DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${timeout} LABELS "${ARG_LABELS}")
  list(APPEND ARG_LABELS long)
  list(JOIN ARG_LABELS "-" long_label)
  if(ARG_LONG_LABEL)
    set(long_label ${ARG_LONG_LABEL})
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${folder}/" TEST_FILTER "*Long.*" TEST_LIST ${name}_long
    NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 900 LABELS "${long_label}")
endfunction()
