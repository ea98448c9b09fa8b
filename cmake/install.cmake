# What `cmake --install` puts where. src/cli/parts.c looks for the parts in these places, relative to sublet, so that a
# prefix can be moved as a whole.
set(SUBLET_PRIVATE_DIR ${CMAKE_INSTALL_LIBDIR}/sublet)

# Libraries that are loaded by path only lie in a folder of their own: the linker must never find them by accident.
install(PROGRAMS ${CMAKE_BINARY_DIR}/libsublet.so DESTINATION ${SUBLET_PRIVATE_DIR})
if(SUBLET_CLI)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sublet DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sublet-demo-job DESTINATION ${SUBLET_PRIVATE_DIR})
endif()
if(SUBLET_DAEMON)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/subletd DESTINATION ${CMAKE_INSTALL_SBINDIR})
endif()
if(SUBLET_SIM)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/sim/libcuda.so.1 ${CMAKE_BINARY_DIR}/sim/libnvidia-ml.so.1
                   ${CMAKE_BINARY_DIR}/sim/simcuda-stat
          DESTINATION ${SUBLET_PRIVATE_DIR}/sim)
endif()
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
