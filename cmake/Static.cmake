# SPDX-License-Identifier: Apache-2.0
# Makes outside libraries link statically where the distribution ships an archive beside the shared object, so that a
# program can be carried to a machine without our packages. What has no archive stays shared; programs look for it in
# lib/ beside themselves, where `./dev bundle` puts it.
set(CMAKE_BUILD_RPATH "$ORIGIN/lib")
if(FORETOKEN_CUDA)  # NCCL is opened by name when several GPUs share a model; here is the one of `./dev setup --cuda`
  list(APPEND CMAKE_BUILD_RPATH ${CMAKE_SOURCE_DIR}/.cuda/nvidia/nccl/lib)
endif()
add_link_options(-Wl,--disable-new-dtags)  # so that the libraries there find each other, too

# The archive beside a shared object, or the file itself.
function(archive_of file result)
  string(REGEX REPLACE "^(/.*)\\.so[0-9.]*$" "\\1.a" archive "${file}")
  if(archive MATCHES "\\.a$" AND EXISTS "${archive}")
    set(file "${archive}")
  elseif(file MATCHES "^(-l)?re2$")  # named without its place
    find_library(FORETOKEN_RE2_ARCHIVE libre2.a REQUIRED)
    set(file ${FORETOKEN_RE2_ARCHIVE})
  endif()
  set(${result} "${file}" PARENT_SCOPE)
endfunction()

# An imported target, and whatever it needs.
function(prefer_archives target)
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(aliased ${target} ALIASED_TARGET)
  if(aliased)
    set(target ${aliased})
  endif()
  get_property(done GLOBAL PROPERTY FORETOKEN_ARCHIVES_PREFERRED)
  get_target_property(is_imported ${target} IMPORTED)
  if(target IN_LIST done OR NOT is_imported)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY FORETOKEN_ARCHIVES_PREFERRED ${target})
  foreach(place IMPORTED_LOCATION IMPORTED_LOCATION_NONE IMPORTED_LOCATION_RELEASE IMPORTED_LOCATION_RELWITHDEBINFO)
    get_target_property(file ${target} ${place})
    if(file)
      archive_of("${file}" file)
      set_target_properties(${target} PROPERTIES ${place} "${file}")
    endif()
  endforeach()
  get_target_property(needs ${target} INTERFACE_LINK_LIBRARIES)
  set(static_needs "")
  foreach(need IN LISTS needs)
    if(need)
      archive_of("${need}" static_need)
      list(APPEND static_needs "${static_need}")
      string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" need "${need}")
      prefer_archives("${need}")
    endif()
  endforeach()
  if(static_needs)
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${static_needs}")
  endif()
endfunction()

foreach(library gRPC::grpc++ protobuf::libprotobuf OpenSSL::SSL OpenSSL::Crypto PkgConfig::PCRE2
    PkgConfig::MINIZIP PkgConfig::UTF8PROC PkgConfig::XXHASH absl::flags absl::flags_parse absl::flags_usage absl::flat_hash_map absl::flat_hash_set
    absl::synchronization absl::statusor absl::strings absl::str_format absl::time absl::btree absl::any_invocable
    absl::flags_marshalling)
  prefer_archives(${library})
endforeach()
