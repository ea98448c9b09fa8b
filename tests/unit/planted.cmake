# Tests of the scheduler, each with one mistake planted in the scheduler (src/sched/planted.h): it must fail. The random test must
# say why in a short sequence. Only the file with the mistake is compiled again; it stands before the library, so that the
# linker takes it from there.
# test and file of src/sched of mistake 1, 2, ...
set(planted
  sched_random:ledger sched_random:ledger sched_random:ledger sched_random:ledger sched_random:sched
  sched_random:victims sched_random:sched sched_random:sched sched_random:settle sched_random:ledger
  sched_random:victims sched_random:ledger sched_share:fair schedsim:fair sched_share:fair sched_share:fair
  sched_turns:victims sched_share:victims sched_turns:habits sched_turns:victims sched_random:ledger sched_turns:sched
  sched_random:sched sched_random:late sched_random:ledger sched_random:holder sched_group:holder
  sched_share:fair schedsim:division schedsim:limits schedsim:division sched_group:holder
  sched_random:preempt sched_random:preempt sched_random:sched_settings preempt:preempt preempt:preempt preempt:preempt
  preempt:preempt preempt:preempt preempt:limits preempt:preempt)

# of computing time; a sanitizer takes several times as much, and so does an emulator
set(planted_seconds 30)
if(SUBLET_SANITIZE OR CMAKE_CROSSCOMPILING)
  set(planted_seconds 300)
endif()

if(TARGET test_sched_random)
  foreach(test sched_random sched_share sched_turns sched_group preempt schedsim)
    get_target_property(sources test_${test} SOURCES)
    get_target_property(libraries test_${test} LINK_LIBRARIES)
    get_target_property(defines test_${test} COMPILE_DEFINITIONS)
    add_library(planted_${test} OBJECT ${sources})
    target_include_directories(planted_${test} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(planted_${test} PRIVATE ${libraries})
    if(defines)
      target_compile_definitions(planted_${test} PRIVATE ${defines})
    endif()
  endforeach()
  set(number 0)
  foreach(mistake IN LISTS planted)
    math(EXPR number "${number} + 1")
    string(REPLACE ":" ";" mistake ${mistake})
    list(GET mistake 0 test)
    list(GET mistake 1 file)
    set(name sched_planted_${number})
    add_executable(${name} ${CMAKE_SOURCE_DIR}/src/sched/${file}.c $<TARGET_OBJECTS:planted_${test}>)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/unit/planted")
    target_compile_definitions(${name} PRIVATE SCHED_BUG=${number})
    get_target_property(libraries test_${test} LINK_LIBRARIES)
    target_link_libraries(${name} PRIVATE ${libraries})
    add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/must_fail.sh $<TARGET_FILE:${name}> ${planted_seconds})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS unit)
  endforeach()
endif()
