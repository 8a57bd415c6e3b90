# SPDX-License-Identifier: Apache-2.0
# One library per folder, one test binary per test folder.

add_library(foretoken_options INTERFACE)
target_include_directories(foretoken_options INTERFACE ${CMAKE_SOURCE_DIR})
# Designated initialisers leave fields at their defaults on purpose.
target_compile_options(foretoken_options INTERFACE -Wall -Wextra -Werror -Wno-sign-compare -Wno-psabi
  -Wno-missing-field-initializers)
if(FORETOKEN_SANITIZER)
  target_compile_options(foretoken_options INTERFACE -fsanitize=${FORETOKEN_SANITIZER} -fno-omit-frame-pointer)
  target_link_options(foretoken_options INTERFACE -fsanitize=${FORETOKEN_SANITIZER})
  set(suppressions "suppressions=${CMAKE_SOURCE_DIR}/tests/sanitizers")
  set(FORETOKEN_TEST_ENVIRONMENT "ASAN_OPTIONS=detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=halt_on_error=1 print_stacktrace=1" "TSAN_OPTIONS=${suppressions}/tsan.supp")
endif()
# What every executable of ours is linked with.
add_library(foretoken_executable INTERFACE)
target_link_libraries(foretoken_executable INTERFACE foretoken_options)
if(FORETOKEN_SANITIZER STREQUAL "thread")
  add_library(foretoken_absl_mutex_for_tsan OBJECT ${CMAKE_SOURCE_DIR}/tests/sanitizers/absl_mutex_for_tsan.cc)
  target_link_libraries(foretoken_absl_mutex_for_tsan PUBLIC foretoken_options absl::synchronization ${CMAKE_DL_LIBS})
  target_sources(foretoken_executable INTERFACE $<TARGET_OBJECTS:foretoken_absl_mutex_for_tsan>)
  target_link_libraries(foretoken_executable INTERFACE absl::synchronization ${CMAKE_DL_LIBS})
endif()

# foretoken_library(NAME DEPS ...): every .cc of the current folder but main.cc, as a static library.
function(foretoken_library name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  if(sources)
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
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/main.cc)
  target_link_libraries(${name} PRIVATE foretoken_executable ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# foretoken_test(NAME FOLDER DEPS ...): every *_test.cc of tests/FOLDER as one binary, a ctest entry per case.
function(foretoken_test name folder)
  cmake_parse_arguments(ARG "" "" "DEPS;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE foretoken_executable foretoken_testing ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  include(GoogleTest)
  set(properties TIMEOUT 300)
  if(ARG_LABELS)
    list(APPEND properties LABELS "${ARG_LABELS}")
  endif()
  if(FORETOKEN_TEST_ENVIRONMENT)
    string(REPLACE ";" "\\;" environment "${FORETOKEN_TEST_ENVIRONMENT}")  # one property, however many variables
    list(APPEND properties ENVIRONMENT "${environment}")
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${folder}/" DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()
