/* alone.h: one plugin at a time serves a daemon's directory; another one waits until it has ended.
 * Two would replace each other's socket, registration and file of pods for ever. */
#pragma once

#include <systemd/sd-event.h>

struct alone;

/* begin: called once, from the loop, when no other plugin serves the directory. dir outlives *ret.
 * 0 or -errno. */
int alone_new(sd_event *loop, const char *dir, void (*begin)(void *userdata), void *userdata,
              struct alone **ret);
/* Lets the next one begin. NULL is a no-op. */
void alone_free(struct alone *a);
