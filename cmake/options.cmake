# Compiler settings and the parts that can be left out, all in one place.

option(SUBLET_DAEMON "subletd (needs libsystemd, inih, jansson)" ON)
option(SUBLET_CLI "sublet, the command line (needs jansson)" ON)
option(SUBLET_KUBERNETES "sublet-device-plugin (needs libsystemd, jansson, grpc, protobuf-c, curl) sublet-webhook (gnutls, jansson, libmicrohttpd, libsystemd) and sublet-extender (both, and what sublet-pairing needs)" ON)
option(SUBLET_SLURM "Slurm's plugin (needs inih, jansson; libslurm-dev for the plugin itself)" ON)
option(SUBLET_PAIRING "sublet-pairing (needs jansson, libxgboost, LEMON and a compiler for C++)" ON)
option(SUBLET_SIM "the simulated driver and NVML" ON)
option(SUBLET_TESTS "unit tests, test programs (need cmocka), and torture in libsublet.so" OFF)
option(SUBLET_BENCH "benchmarks" ON)
option(SUBLET_FUZZ "fuzz targets run by libFuzzer (needs clang)" OFF)
set(SUBLET_SANITIZE "" CACHE STRING "address,undefined or thread; empty for none")

# Where an installation has its private files, and files for other programs: zsh's completion, Python's module.
set(SUBLET_PRIVATE_DIR ${CMAKE_INSTALL_LIBDIR}/sublet)
set(SUBLET_ZSH_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "zsh's completion")
# The folder below the prefix in which python3 looks for modules. If there is none, PYTHONPATH must name the folder.
if(NOT DEFINED CACHE{SUBLET_PYTHON_DIR})
  execute_process(
    COMMAND /usr/bin/python3 -c "import site; print(next(p[len('${CMAKE_INSTALL_PREFIX}/'):] for p in site.getsitepackages() if p.startswith('${CMAKE_INSTALL_PREFIX}/lib/')))"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(folder)
    set(SUBLET_PYTHON_DIR ${folder} CACHE STRING "sublet.py")
  else()
    set(SUBLET_PYTHON_DIR ${CMAKE_INSTALL_DATADIR}/sublet) # not in the cache: python3 may be installed later
  endif()
endif()

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

add_compile_definitions(_GNU_SOURCE SUBLET_VERSION="${PROJECT_VERSION}")
add_compile_options(
  -Wall -Wextra -Wshadow "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>" -Wpointer-arith -Wvla
  -Wformat=2 -Wno-unused-parameter -fno-common -fno-strict-aliasing -fstack-protector-strong)
# clang warns of fields that a row of a table leaves out after a named one; gcc does not.
add_compile_options("$<$<C_COMPILER_ID:Clang>:-Wno-missing-field-initializers>")
option(SUBLET_WERROR "warnings are errors" ON)
if(SUBLET_WERROR)
  add_compile_options(-Werror)
endif()
if(SUBLET_SANITIZE)
  add_compile_options(-fsanitize=${SUBLET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  if(SUBLET_SANITIZE MATCHES "undefined")
    # gcc's check of a thread's variable reads flags that the linker's form of the access does not set (gcc 12.2, binutils
    # 2.40). The address sanitizer reports null pointers anyway.
    add_compile_options(-fno-sanitize=null)
  endif()
  add_link_options(-fsanitize=${SUBLET_SANITIZE})
  add_compile_definitions(SUBLET_SANITIZED)
  if(SUBLET_SANITIZE STREQUAL "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan) # TSan does not model fences; the gate has a test of its own for them
  endif()
endif()
if(SUBLET_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
include_directories(${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}) # for "base/log.h" and "sim/api/sim.h"
