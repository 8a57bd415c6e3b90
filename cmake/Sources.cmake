# SPDX-License-Identifier: Apache-2.0
# Libraries that Debian does not package, built from the sources that ./dev setup puts into .sources.
set(FORETOKEN_SOURCES ${CMAKE_SOURCE_DIR}/.sources CACHE PATH "Where ./dev setup puts the sources of libraries")

function(foretoken_require_source name file)
  if(NOT EXISTS ${FORETOKEN_SOURCES}/${name}/${file})
    message(FATAL_ERROR "${FORETOKEN_SOURCES}/${name}/${file} is missing: run ./dev setup")
  endif()
endfunction()

# XGrammar: grammars that say which tokens may come next. Its own build sets flags for the whole project and can make a
# Python module, so its files are compiled here. What it includes from others lies beside it.
foretoken_require_source(xgrammar include/xgrammar/xgrammar.h)
file(GLOB_RECURSE xgrammar_sources ${FORETOKEN_SOURCES}/xgrammar/cpp/*.cc)
list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/tvm_ffi/")
foretoken_join(xgrammar_sources xgrammar)
add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
target_include_directories(xgrammar PRIVATE ${CMAKE_SOURCE_DIR})
target_include_directories(xgrammar SYSTEM PUBLIC ${FORETOKEN_SOURCES}/xgrammar/include
  ${FORETOKEN_SOURCES}/xgrammar/3rdparty/picojson ${FORETOKEN_SOURCES}/xgrammar/3rdparty/dlpack/include)
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
target_compile_definitions(xgrammar PRIVATE XGRAMMAR_LOG_CUSTOMIZE=1)  # verifier_service/grammar/xgrammar_log.cc
target_compile_options(xgrammar PRIVATE -w)
if(FORETOKEN_SANITIZER)
  target_compile_options(xgrammar PRIVATE -fsanitize=${FORETOKEN_SANITIZER} -fno-omit-frame-pointer)
endif()

# The Jinja engine of llama.cpp, with our patch. It calls functions that common/chat/ defines.
set(jinja_root ${FORETOKEN_SOURCES}/llama_cpp_python/vendor/llama.cpp/common)
foretoken_require_source(llama_cpp_python vendor/llama.cpp/common/jinja/runtime.h)
add_library(jinja STATIC EXCLUDE_FROM_ALL ${jinja_root}/jinja/lexer.cpp ${jinja_root}/jinja/parser.cpp
  ${jinja_root}/jinja/runtime.cpp ${jinja_root}/jinja/string.cpp ${jinja_root}/jinja/value.cpp ${jinja_root}/unicode.cpp)
target_include_directories(jinja SYSTEM PUBLIC ${jinja_root})
target_compile_options(jinja PRIVATE -w)
if(FORETOKEN_SANITIZER)
  target_compile_options(jinja PRIVATE -fsanitize=${FORETOKEN_SANITIZER} -fno-omit-frame-pointer)
endif()
