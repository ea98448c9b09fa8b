# The random test of the scheduler, twelve times, each with one mistake planted in the scheduler (src/sched/planted.h): it
# must fail, and say why in a short sequence. Only the file with the mistake is compiled again; it stands before the library,
# so that the linker takes it from there.
# file of src/sched in which bug 1, 2, ... is planted
set(planted_files ledger ledger ledger ledger sched policy sched sched settle ledger policy ledger)

# of computing time; a sanitizer takes several times as much, and so does an emulator
set(planted_seconds 10)
if(SUBLET_SANITIZE OR CMAKE_CROSSCOMPILING)
  set(planted_seconds 100)
endif()

if(TARGET test_sched_random)
  get_target_property(random_sources test_sched_random SOURCES)
  add_library(sched_random_objects OBJECT ${random_sources})
  target_include_directories(sched_random_objects PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(sched_random_objects PRIVATE sublet_sched PkgConfig::CMOCKA)
  set(number 0)
  foreach(file IN LISTS planted_files)
    math(EXPR number "${number} + 1")
    set(name sched_planted_${number})
    add_executable(${name} ${CMAKE_SOURCE_DIR}/src/sched/${file}.c $<TARGET_OBJECTS:sched_random_objects>)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/unit/planted")
    target_compile_definitions(${name} PRIVATE SCHED_BUG=${number})
    target_link_libraries(${name} PRIVATE sublet_sched PkgConfig::CMOCKA)
    add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/must_fail.sh $<TARGET_FILE:${name}> ${planted_seconds})
    set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS unit)
  endforeach()
endif()
