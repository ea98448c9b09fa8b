# Declares unit tests. Each has one line in tests/unit/CMakeLists.txt, one binary and one ctest entry:
#
#   sublet_unit_test(test_wire LIBS sublet_wire)
#   sublet_unit_test(test_heap LIBS sublet_base SOURCES ${CMAKE_SOURCE_DIR}/src/preload/heap/heap.c
#                    DEFINES HEAP_TEST INCLUDES ${CMAKE_SOURCE_DIR}/sim TIMEOUT 120 ARGS --slow)
#   sublet_unit_test(test_moves LOCKS LIBS unit_fakes) # a release of a lock that nobody holds fails the test
#   sublet_unit_test(test_link LIBS sublet_base WRAPS calloc) # calls of calloc() go to __wrap_calloc() of the test
#   sublet_unit_test(test_gate PROCESSORS 2 LIBS sublet_base) # its threads wait by turning: fewer tests run beside it
#
# The source is <name>.c beside the CMakeLists.txt. SOURCES may name sources of the product: the test is linked with the
# object that the product is made of, so that each source is compiled once. If this configuration leaves out a library
# of the test (its target does not exist), the test is left out too, with a message. A test that exits with 77 is
# counted as skipped.
# Why: docs/decisions.md, "Unit tests are linked with the product's objects".

find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
endif()

# The targets of the product whose objects tests are linked with. owner_of_PATH is the target that compiles a source.
foreach(target sublet sublet_ranks subletd sublet_base sublet_extender sublet-pairs-job)
  if(TARGET ${target})
    get_target_property(directory ${target} SOURCE_DIR)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${directory})
      set(owner_of_${source} ${target})
    endforeach()
  endif()
endforeach()

# sublet_objects(RESULT [LOCKS] SOURCE...): replaces sources of the product by the product's objects. With LOCKS, those of
# the library are of the build that watches locks.
function(sublet_objects result)
  cmake_parse_arguments(OBJECTS "LOCKS" "" "" ${ARGN})
  set(found)
  foreach(source IN LISTS OBJECTS_UNPARSED_ARGUMENTS)
    set(owner ${owner_of_${source}})
    if(NOT owner)
      list(APPEND found ${source})
      continue()
    endif()
    if(OBJECTS_LOCKS AND owner STREQUAL sublet)
      set(owner sublet_watched)
    endif()
    get_target_property(directory ${owner} SOURCE_DIR)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${directory})
    string(REPLACE "." "[.]" source ${source}) # no backslashes: CMake takes them for those of a path
    list(APPEND found "$<FILTER:$<TARGET_OBJECTS:${owner}>,INCLUDE,/${owner}[.]dir/([.]/)?${source}[.]o$>")
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

function(sublet_unit_test name)
  set(directory "${CMAKE_CURRENT_SOURCE_DIR}")
  cmake_parse_arguments(TEST "LOCKS" "TIMEOUT;PROCESSORS" "LIBS;SOURCES;DEFINES;INCLUDES;WRAPS;ARGS;ENVIRONMENT" ${ARGN})
  if(TEST_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "sublet_unit_test(${name}): unknown argument ${TEST_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT TARGET PkgConfig::CMOCKA)
    message(STATUS "test ${name} left out: no cmocka")
    return()
  endif()
  if(NOT EXISTS "${directory}/${name}.c")
    message(FATAL_ERROR "test ${name}: ${directory}/${name}.c is not there")
  endif()
  foreach(lib IN LISTS TEST_LIBS)
    if(lib MATCHES "^sublet_" AND NOT TARGET ${lib})
      message(STATUS "test ${name} left out: ${lib} is not built")
      return()
    endif()
  endforeach()
  if(SUBLET_SANITIZE)
    set(TEST_TIMEOUT 1200)
  elseif(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  if(NOT TEST_PROCESSORS)
    set(TEST_PROCESSORS 1)
  endif()

  if(TEST_LOCKS)
    sublet_objects(objects LOCKS ${TEST_SOURCES})
    list(APPEND TEST_LIBS unit_locks)
  else()
    sublet_objects(objects ${TEST_SOURCES})
  endif()
  add_executable(${name} "${directory}/${name}.c" ${objects})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/unit")
  target_include_directories(${name} PRIVATE "${directory}" ${TEST_INCLUDES})
  target_compile_definitions(${name} PRIVATE ${TEST_DEFINES})
  list(TRANSFORM TEST_WRAPS PREPEND LINKER:--wrap=)
  target_link_options(${name} PRIVATE ${TEST_WRAPS})
  target_link_libraries(${name} PRIVATE ${TEST_LIBS} unit_tell PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${name} ${TEST_ARGS})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${TEST_TIMEOUT} LABELS unit SKIP_RETURN_CODE 77 PROCESSORS ${TEST_PROCESSORS}
    ENVIRONMENT "SUBLET_BUILD=${CMAKE_BINARY_DIR};SUBLET_SOURCE=${CMAKE_SOURCE_DIR};${TEST_ENVIRONMENT}")
endfunction()
