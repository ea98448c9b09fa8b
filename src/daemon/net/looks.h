/* looks.h: looks at the cards, through the process that calls NVML. */
#pragma once

#include <stdint.h>

struct nvml_look;
struct server;

/* Asks for a look, because a sample of all cards is due. */
void looks_sample(struct server *s);
/* Asks for a look after a time without clients, in which nothing was sampled: earlier samples are
 * useless. */
void looks_afresh(struct server *s);
/* Handles the reader's answer. userdata: the server. */
void looks_told(void *userdata, const struct nvml_look *look, uint64_t asked_ns);
