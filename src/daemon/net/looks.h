/* looks.h: looks at the cards, through the process that reads NVML. */
#pragma once

#include <stdint.h>

struct nvml_look;
struct server;

/* A sample of all cards is due: ask for a look. */
void looks_sample(struct server *s);
/* The reader's answer. userdata: the server. */
void looks_told(void *userdata, const struct nvml_look *look, uint64_t asked_ns);
