/* control.h: the connections of control.sock and of status.sock. */
#pragma once

#include <stdint.h>
#include <systemd/sd-event.h>

struct server;

int control_accept(sd_event_source *src, int fd, uint32_t events, void *userdata);
int control_accept_viewer(sd_event_source *src, int fd, uint32_t events, void *userdata);
void control_close_all(struct server *s);
void control_sweep(struct server *s); /* frees the connections that are marked */
