/* doctor_programs.h: which programs under sublet have loaded a library that keeps their memory on
 * the card. */
#pragma once

/* Calls found() for each readable process that has loaded both libsublet.so and a library of
 * hidden_libraries.def: with its pid, the name of that library and its purpose. */
void programs_hidden(void (*found)(int pid, const char *library, const char *what));
