# Tests of the library's freezing beside the daemon's hand, each with one mistake planted in the code of either: it must fail. A
# mistake replaces a text of a source, so that the source itself contains none; the text must be there.
# hand_mistake(TEST SOURCE TEXT REPLACEMENT)
set(hand_preload ${CMAKE_SOURCE_DIR}/src/preload/rm)
set(hand_number 0)
function(hand_mistake test source text replacement)
  math(EXPR number "${hand_number} + 1")
  set(hand_number ${number} PARENT_SCOPE)
  set(name hand_planted_${number})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/planted_hand)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} code)
  string(REPLACE "${text}" "${replacement}" wrong "${code}")
  if(wrong STREQUAL code)
    message(FATAL_ERROR "${source} has no \"${text}\": plant another mistake (planted_hand.cmake)")
  endif()
  file(CONFIGURE OUTPUT ${folder}/${name}.c CONTENT "${wrong}" @ONLY)
  set(others ${hand_preload}/rm.c ${hand_preload}/rm_hand.c ${hand_preload}/rm_door.c ${hand_preload}/channels.c)
  list(REMOVE_ITEM others ${source})
  sublet_objects(objects LOCKS ${others})
  if(test STREQUAL hand_names)
    set(objects)
  else()
    list(APPEND objects $<TARGET_OBJECTS:planted_hand>)
  endif()
  add_executable(${name} ${folder}/${name}.c test_${test}.c ${objects})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/unit/planted")
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE unit_fakes sublet_daemon sublet_base unit_locks unit_tell PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/must_fail.sh $<TARGET_FILE:${name}> ${planted_seconds})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS unit)
endfunction()

if(TARGET test_rm_hand AND TARGET test_hand_names)
  add_library(planted_hand OBJECT rm_bench.c hand_bench.c)
  target_link_libraries(planted_hand PRIVATE unit_fakes sublet_daemon sublet_base)
  set(hand_names ${CMAKE_SOURCE_DIR}/src/daemon/hand/hand_names.c)

  # A name of somebody else's channel is used.
  hand_mistake(hand_names ${hand_names} "!is_proved(b->proved, client) ||" "(!is_proved(b->proved, client) && false) ||")
  # A call that failed at a missing channel is not undone.
  hand_mistake(hand_names ${hand_names} "(void)b->change(b->userdata, c, !b->disable);" "")
  # An entry is changed for the name that it had before.
  hand_mistake(hand_names ${hand_names} "&e->word," "&(uint32_t){atomic_load(&b->page->names[e->at].off)},")
  # RM frees a channel while the hand names it.
  hand_mistake(rm_hand ${hand_preload}/rm_hand.c "atomic_load(&hand.page->busy); i++" "false; i++")
  hand_mistake(hand_names ${hand_names} "atomic_store(&p->busy, 1);" "")
  # The library does not look again whether the hand still holds the program.
  hand_mistake(rm_hand ${hand_preload}/rm_hand.c "return atomic_load(&hand.page->holds) || !set_off(n, HAND_OFF, HAND_RUNS)" "return true")
  # A new channel runs although the hand holds the program.
  hand_mistake(rm_hand ${hand_preload}/rm_hand.c "set_off(n, HAND_RUNS, HAND_PENDING)" "false")
  # A channel that RM did not free counts as new.
  hand_mistake(rm_hand ${hand_preload}/rm_hand.c "if (hand.names[i] != name)" "if (true)")
  # The program's enabling undoes what is not its own.
  hand_mistake(rm_hand ${hand_preload}/rm.c "o->own == 0 && !d->disable" "false")
  # The program's own disabling ends with the hand.
  hand_mistake(rm_hand ${hand_preload}/rm.c "if (o->own == 0 ||" "if (true ||")
  # A hand that has died leaves channels off.
  hand_mistake(rm_hand ${hand_preload}/rm.c "owed = MAX(owed, HAND_LEFT_OFF)" "owed = MAX(owed, 0u)")
  # A program is frozen while the hand may still undo what the library has done.
  hand_mistake(rm_hand ${hand_preload}/rm.c "if (disable && hand_is_leaving())" "if (false)")
endif()
