# Declares unit tests. Each has one line in tests/unit/CMakeLists.txt, one binary and one ctest entry:
#
#   sublet_unit_test(test_wire LIBS sublet_wire)
#   sublet_unit_test(test_heap LIBS sublet_base SOURCES ${CMAKE_SOURCE_DIR}/src/preload/heap/heap.c
#                    DEFINES HEAP_TEST INCLUDES ${CMAKE_SOURCE_DIR}/sim TIMEOUT 120 ARGS --slow)
#   sublet_unit_test(test_moves LOCKS LIBS unit_fakes) # a release of a lock that nobody holds fails the test
#
# The source is <name>.c beside the CMakeLists.txt. If this configuration leaves out a library of the test (its target
# does not exist), the test is left out too, with a message. A test that exits with 77 is counted as skipped.

find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
endif()

function(sublet_unit_test name)
  set(directory "${CMAKE_CURRENT_SOURCE_DIR}")
  cmake_parse_arguments(TEST "LOCKS" "TIMEOUT" "LIBS;SOURCES;DEFINES;INCLUDES;ARGS;ENVIRONMENT" ${ARGN})
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

  add_executable(${name} "${directory}/${name}.c" ${TEST_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/unit")
  target_include_directories(${name} PRIVATE "${directory}" ${TEST_INCLUDES})
  target_compile_definitions(${name} PRIVATE ${TEST_DEFINES})
  if(TEST_LOCKS) # tests/unit/locks.h
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:C>:SHELL:-include ${directory}/locks.h>")
  endif()
  target_link_libraries(${name} PRIVATE ${TEST_LIBS} PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${name} ${TEST_ARGS})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${TEST_TIMEOUT} LABELS unit SKIP_RETURN_CODE 77
    ENVIRONMENT "SUBLET_BUILD=${CMAKE_BINARY_DIR};SUBLET_SOURCE=${CMAKE_SOURCE_DIR};${TEST_ENVIRONMENT}")
endfunction()
