/* doctor_programs.h: what programs under sublet have loaded that keeps their memory on the card. */
#pragma once

/* For each process that may be looked at and has both libsublet.so and a library of
 * hidden_libraries.def: its pid, that library's name and what it is for. */
void programs_hidden(void (*found)(int pid, const char *library, const char *what));
