/* doctor_programs.h: programs under sublet whose memory stays on the card, or that run without
 * sublet. */
#pragma once

/* Looks at each readable process. Calls has_hidden() for one that has loaded both libsublet.so and
 * a library of hidden_libraries.def, with the name of that library and its purpose; is_unshared()
 * for one that was to preload libsublet.so, did not, and has loaded the driver. */
void programs_look(void (*has_hidden)(int pid, const char *library, const char *what),
                   void (*is_unshared)(int pid));
