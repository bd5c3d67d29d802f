# Compiler settings of the house, and house_library(): one target per folder under src/.

# The bits rule (docs/tour.md): no contraction of a*b+c behind our back; kernels say FMA explicitly.
set(house_flags -ffp-contract=off -Wall -Wextra -Wno-unused-parameter -Werror=return-type -Werror=switch)
list(JOIN house_flags "," cuda_host_flags)
if(REPRISE_SANITIZE)
  # The address sanitizer sees what the three left out would, and their checks stand at every pointer.
  list(APPEND house_flags -fsanitize=${REPRISE_SANITIZE} -fno-sanitize=null,object-size,vptr -fno-omit-frame-pointer
       -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${REPRISE_SANITIZE})
  # What is not optimised is large, and the usual linker takes seconds for each of sixty programs.
  find_program(LLD ld.lld)
  if(LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_link_options(-fuse-ld=lld)
  endif()
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${house_flags}>")
# GCC 12 sees overlapping copies inside its own std::string.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
# Not sanitised: a .cu file holds kernels and their launches, and its host compiler may be another one.
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=${cuda_host_flags}>")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

option(REPRISE_UNITY "Compile a target's source files several at a time; ./dev does in a build from nothing" OFF)
set(REPRISE_UNITY_FILES 32 CACHE STRING "How many at most; fewer are quicker where files are compiled again")

# house_unity(TARGET APART regex...): what several files include is then read and instantiated once, which makes a build
# from nothing twice as fast, and one of a single changed file slower. Names in the unnamed namespaces of a target must
# differ for that; files whose path from the target's folder matches one of APART are compiled alone.
function(house_unity target)
  cmake_parse_arguments(ARG "" "" "APART" ${ARGN})
  if(NOT REPRISE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${REPRISE_UNITY_FILES})
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    if(IS_ABSOLUTE ${source})
      file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    endif()
    foreach(pattern ${ARG_APART})
      if(name MATCHES ${pattern})
        set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endforeach()
endfunction()

# house_hot(FILES...): sources whose loops run over every number of a checkpoint or of a row of logits.
set(REPRISE_KERNEL_OPTIMISATION -O3 CACHE STRING
    "Optimisation of kernels and hot loops in a release; less is for builds that are not run")
function(house_hot)
  set(options $<$<CONFIG:Release>:${REPRISE_KERNEL_OPTIMISATION}>)
  if(REPRISE_SANITIZE)
    set(options -O1)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}" SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# house_busy(TARGET...): what tests wait for. Under a sanitizer only these and the kernels are optimised: the checks are
# most of the code there, and optimising them is half of its compile time.
function(house_busy)
  if(REPRISE_SANITIZE)
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
    endforeach()
  endif()
endfunction()

# house_checked(TARGET...): the checks of the address sanitizer are calls and not lines of code at every access, and a
# pointer's arithmetic is not checked beside the accesses: two thirds of the compile time. Kernels, whose tests would
# wait for the calls, are not among these.
function(house_checked)
  if(REPRISE_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0"
                             -fno-sanitize=pointer-overflow)
    endforeach()
  endif()
endfunction()

# house_cold(TARGET...): what runs at a start, or for a person who waits for an answer anyway. Compiled for size, it
# takes a third less of the binary and a fifth less of the build.
set(REPRISE_COLD_OPTIMISATION -Os CACHE STRING "Optimisation of what is not on the way of a token in a release")
function(house_cold)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE
      "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${REPRISE_COLD_OPTIMISATION}>")
  endforeach()
endfunction()

# house_shareable(TARGET): its objects can go into libreprise.so. Hidden symbols keep calls within a file direct, as
# they are in an executable.
function(house_shareable target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# house_library(NAME DEPS a b LIBS pkg::lib): all .cpp files of the current folder, recursively, except those listed
# in EXCLUDE; public include root is src/. Every header must compile alone (`./dev check`), except those in EXCLUDE.
# APART as for house_unity.
function(house_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;EXCLUDE;APART" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.h)
  if(ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${ARG_EXCLUDE})
    list(REMOVE_ITEM headers ${ARG_EXCLUDE})
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
    target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/src FILES ${headers})
    set_target_properties(${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
    house_shareable(${name})
    house_checked(${name})
    house_unity(${name} APART ${ARG_APART})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} INTERFACE ${ARG_DEPS} ${ARG_LIBS})
  endif()
endfunction()

# house_embed(TARGET NAMESPACE NAME PATH): a file that the binary holds as bytes: kNAMEBytes and kNAMESize in NAMESPACE.
function(house_embed target embedded_namespace embedded_name path)
  get_filename_component(path ${path} ABSOLUTE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," embedded_bytes "${hex}")
  get_filename_component(embedded_file ${path} NAME)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/bytes.cpp.in ${embedded_name}_bytes.cpp @ONLY)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${embedded_name}_bytes.cpp)
endfunction()

# house_archives(OUT TARGET...): the static libraries of the project among them, and those that they are linked to.
function(house_archives out)
  set(left ${ARGN})
  set(archives)
  while(left)
    list(POP_FRONT left target)
    if(target IN_LIST archives OR NOT TARGET ${target})
      continue()
    endif()
    get_target_property(imported ${target} IMPORTED)
    get_target_property(type ${target} TYPE)
    if(imported)
      continue()
    endif()
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND archives ${target})
    endif()
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(links ${target} ${property})
      if(links)
        list(APPEND left ${links})
      endif()
    endforeach()
  endwhile()
  set(${out} ${archives} PARENT_SCOPE)
endfunction()

# house_test(FOLDER DEPS a b LIBS pkg::lib): every *_test.cpp of the current folder as one GoogleTest program. Each TEST
# becomes one CTest entry. REPRISE_SOURCE_DIR tells tests where tests/data lies. APART as for house_unity. THREADED are
# the only files that the thread sanitizer has something to say about, where that is a small part of the folder.
# COMPUTES: the tests have loops of their own over many numbers, LOOPS so many that under a sanitizer, too, they are
# optimised, and have no checks: what they give to the code under test is on the heap, whose borders that code checks.
# PARALLEL: the tests are about threads that run at the same time. Others get one processor each
# (tests/support/one_processor.cpp).
function(house_test folder)
  cmake_parse_arguments(ARG "COMPUTES;LOOPS;PARALLEL" "" "DEPS;LIBS;APART;THREADED" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  if(REPRISE_SANITIZE STREQUAL "thread" AND ARG_THREADED)
    set(sources ${ARG_THREADED})
  endif()
  if(NOT sources)
    return()
  endif()
  add_executable(${folder}_tests ${sources})
  house_unity(${folder}_tests APART ${ARG_APART})
  target_link_libraries(${folder}_tests PRIVATE ${ARG_DEPS} ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_include_directories(${folder}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  # Half of a build from nothing is tests; what they test has the optimisation and the checks. A sanitizer's checks are
  # most of a test's code, and optimising them takes two thirds of its compile time.
  set(quicker $<$<CONFIG:Release>:-O0>)
  if(ARG_COMPUTES)
    set(quicker $<$<CONFIG:Release>:-O1>)
  endif()
  if(REPRISE_SANITIZE AND ARG_LOOPS)
    set(quicker -O1 -fno-sanitize=undefined,address)
  elseif(REPRISE_SANITIZE)
    set(quicker -O0 -fno-sanitize=undefined)
  endif()
  target_compile_options(${folder}_tests PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${quicker}>")
  # The linker takes the first definition of a template, and those of tests are not optimised: libraries come first.
  if(NOT REPRISE_SANITIZE)
    house_archives(archives ${ARG_DEPS})
    list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>")
    if(archives)
      target_link_options(${folder}_tests PRIVATE LINKER:--whole-archive ${archives} LINKER:--no-whole-archive)
    endif()
  endif()
  if(NOT ARG_LOOPS)
    house_checked(${folder}_tests)
  endif()
  target_compile_definitions(${folder}_tests PRIVATE REPRISE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set(processors)
  if(NOT ARG_PARALLEL AND NOT REPRISE_SANITIZE STREQUAL "thread")
    set(processors RESOURCE_GROUPS processors:1)
    target_sources(${folder}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/one_processor.cpp)
  endif()
  # On the simulator of Ascend, work on the same memory that nothing orders is an error in every test. Two properties,
  # because a list is taken apart on its way.
  gtest_discover_tests(${folder}_tests TEST_PREFIX "${folder}." PROPERTIES LABELS ${folder} TIMEOUT 1500 ${processors}
                       ENVIRONMENT ASCEND_SIM_RACES=1 ENVIRONMENT_MODIFICATION REPRISE_DEVICE=set:cpu
                       DISCOVERY_TIMEOUT 60)
endfunction()
