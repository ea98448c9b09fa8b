/* looks.h: looks at the cards, through the process that calls NVML. */
#pragma once

#include <stdint.h>

struct nvml_look;
struct server;

/* Asks for a look, as a sample of all cards is due. */
void looks_sample(struct server *s);
/* Handles the reader's answer. userdata: the server. */
void looks_told(void *userdata, const struct nvml_look *look, uint64_t asked_ns);
