# What `cmake --install` puts where, beside what the folders install themselves: bin/subletd (src/daemon) and
# lib/libsublet.so (src/preload). src/cli/parts.c looks for all of it in these places, relative to sublet, so that a prefix
# can be moved as a whole. The simulated driver lies in a folder of its own: nothing must find it by accident.
set(SUBLET_PRIVATE_DIR ${CMAKE_INSTALL_LIBDIR}/sublet)

if(SUBLET_CLI)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sublet DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sublet-demo-job DESTINATION ${SUBLET_PRIVATE_DIR})
endif()
if(SUBLET_SIM)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sim/libcuda.so.1 ${CMAKE_BINARY_DIR}/sim/libnvidia-ml.so.1
                   ${CMAKE_BINARY_DIR}/sim/simcuda-stat
          DESTINATION ${SUBLET_PRIVATE_DIR}/sim)
endif()
if(SUBLET_CLI)
  install(FILES deploy/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME sublet)
endif()
if(SUBLET_DAEMON)
  configure_file(deploy/subletd.service.in ${CMAKE_BINARY_DIR}/subletd.service @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/subletd.service DESTINATION lib/systemd/system)
endif()
install(FILES include/sublet.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES python/sublet.py DESTINATION ${CMAKE_INSTALL_DATADIR}/sublet)
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
