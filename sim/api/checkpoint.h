/* checkpoint.h: the thread that takes a process's steps of a checkpoint. */
#pragma once

/* Starts the thread, at cuInit. Without it, nobody can checkpoint the process. */
void checkpoint_setup(void);
