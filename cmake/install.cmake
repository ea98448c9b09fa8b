# The files that `cmake --install` installs, except bin/subletd (src/daemon), lib/sublet/libsublet.so (src/preload),
# lib/sublet/libsublet-ranks.so (src/ranks) and lib/sublet/sublet_spank.so (src/slurm).
# src/client/common/part_paths.c finds the parts of sublet by their paths relative to the program sublet, so that an installation can
# be moved as a whole. Nothing is linked with libsublet.so, so it is in a private folder (cmake/options.cmake). The
# simulated driver has a folder of its own there, so that no program loads it by accident.

if(SUBLET_CLI)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sublet DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sublet-demo-job ${CMAKE_BINARY_DIR}/sublet-bench-job ${CMAKE_BINARY_DIR}/sublet-pairs-job DESTINATION ${SUBLET_PRIVATE_DIR})
  install(FILES src/lab/bench/bench_torch.py src/lab/pairs/pairs_torch.py DESTINATION ${SUBLET_PRIVATE_DIR})
endif()
if(TARGET sublet-pairing)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sublet-pairing DESTINATION ${SUBLET_PRIVATE_DIR})
  # Models that come with the product, one for each card, in a file named as the card.
  install(DIRECTORY deploy/models DESTINATION ${SUBLET_PRIVATE_DIR} FILES_MATCHING PATTERN "*.json" PATTERN "*.md")
endif()
if(SUBLET_SIM)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sim/libcuda.so.1 ${CMAKE_BINARY_DIR}/sim/libnvidia-ml.so.1
                   ${CMAKE_BINARY_DIR}/sim/simcuda-stat
          DESTINATION ${SUBLET_PRIVATE_DIR}/sim)
endif()
if(SUBLET_CLI)
  install(FILES deploy/completion/sublet.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME sublet)
  install(FILES deploy/completion/_sublet DESTINATION ${SUBLET_ZSH_DIR})
  install(FILES deploy/completion/sublet.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
if(SUBLET_DAEMON)
  configure_file(deploy/subletd.service.in ${CMAKE_BINARY_DIR}/subletd.service @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/subletd.service deploy/subletd.socket deploy/subletd-control.socket
          DESTINATION lib/systemd/system)
  # /etc/sublet/subletd.conf is not installed: an installation must not overwrite the owner's settings.
endif()
if(TARGET sublet-device-plugin)
  install(TARGETS sublet-device-plugin RUNTIME DESTINATION ${CMAKE_INSTALL_SBINDIR})
endif()
# The manual pages are made from the programs' help, so the programs must run here, without a sanitizer's messages.
if(SUBLET_CLI AND SUBLET_DAEMON AND NOT CMAKE_CROSSCOMPILING AND NOT SUBLET_SANITIZE)
  set(more_programs) # with pages of section 8
  foreach(part sublet-device-plugin sublet-webhook sublet-extender)
    if(TARGET ${part})
      list(APPEND more_programs ${part})
    endif()
  endforeach()
  list(TRANSFORM more_programs REPLACE "(.+)" "${CMAKE_BINARY_DIR}/\\1.8" OUTPUT_VARIABLE more_pages)
  list(TRANSFORM more_programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE more_files)
  add_custom_command(
    OUTPUT ${CMAKE_BINARY_DIR}/sublet.1 ${CMAKE_BINARY_DIR}/subletd.8 ${CMAKE_BINARY_DIR}/subletd.conf.5 ${more_pages}
    COMMAND sh ${CMAKE_SOURCE_DIR}/deploy/man.sh $<TARGET_FILE:sublet_command> $<TARGET_FILE:subletd>
            ${CMAKE_INSTALL_FULL_DOCDIR} ${CMAKE_BINARY_DIR} ${more_files}
    DEPENDS deploy/man.sh sublet_command subletd ${more_programs}
    COMMENT "Writing the manual pages")
  add_custom_target(sublet_manual ALL DEPENDS ${CMAKE_BINARY_DIR}/sublet.1 ${CMAKE_BINARY_DIR}/subletd.8 ${more_pages})
  install(FILES ${CMAKE_BINARY_DIR}/sublet.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_BINARY_DIR}/subletd.conf.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
  install(FILES ${CMAKE_BINARY_DIR}/subletd.8 ${more_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
endif()
# A target with all files that `cmake --install` installs. ./dev demo builds only this target, and an installation works
# after it.
add_custom_target(product)
foreach(part sublet sublet_ranks subletd sublet_command sublet-device-plugin sublet-webhook sublet-extender sublet-pairing sublet-demo-job sublet-bench-job sublet-pairs-job sim_cuda sim_nvml
    simcuda-stat sublet_spank sublet_manual)
  if(TARGET ${part})
    add_dependencies(product ${part})
  endif()
endforeach()
install(FILES include/sublet.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES python/sublet.py DESTINATION ${SUBLET_PYTHON_DIR})
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN decisions.md EXCLUDE PATTERN "*.md" PATTERN "*.json" PATTERN "*.jsonl" PATTERN "*.svg" PATTERN "*.png" PATTERN "examples/*")
# Sources are not installed, so the installed page of decisions does not link to them.
install(CODE "
  file(READ \"${CMAKE_CURRENT_SOURCE_DIR}/docs/decisions.md\" page)
  string(REGEX REPLACE \"\\n[*][*]Code[.][*][*] [^\\n]*(\\n[^\\n]+)*\\n\" \"\" page \"\${page}\")
  file(WRITE \"${CMAKE_BINARY_DIR}/decisions.md\" \"\${page}\")")
install(FILES ${CMAKE_BINARY_DIR}/decisions.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(DIRECTORY deploy/kubernetes DESTINATION ${CMAKE_INSTALL_DOCDIR}/deploy PATTERN certificate EXCLUDE
  PATTERN .gitignore EXCLUDE)
# Files of the repository that the installed documentation links to, with the same relative paths (tools/check_links.py).
foreach(linked deploy/container/Containerfile deploy/subletd.conf deploy/grafana/sublet.json deploy/prometheus/sublet.rules.yml deploy/prometheus/sublet.rules.test.yml sim/README.md src/wire/wire_history.h src/wire/wire_messages.def tests/fuzz/README.md)
  get_filename_component(folder ${linked} DIRECTORY)
  install(FILES ${linked} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
