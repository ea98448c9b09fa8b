/* extender.h: the extender as a whole: it follows the cluster and the job files, and serves the
 * scheduler. */
#pragma once

#include "kubernetes/api/web.h"
#include "kubernetes/extender/extender_answer.h"
#include "kubernetes/serve/serve_loop.h"

struct extender_options {
        struct server_options server;
        struct web_server api;
        const char *jobs, *model; /* model "": none */
        struct pod_rules rules;
        enum prefer prefer;
};

/* Runs until SIGTERM or SIGINT. 0; or -errno after a sentence; -EINVAL: the options are wrong. */
int extender_run(const struct extender_options *o, char error[static JOBS_ERROR_MAX]);
