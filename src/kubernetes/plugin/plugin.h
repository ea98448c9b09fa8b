/* plugin.h: the device plugin as a whole. */
#pragma once

#include "kubernetes/plugin/choose_devices.h"
#include "kubernetes/plugin/grant.h"
#include "kubernetes/plugin/plugin_pod.h"
#include "kubernetes/api/web.h"

struct plugin_options {
        const char *dir; /* the daemon's directory, as the plugin sees it */
        const char *kubelet_dir, *endpoint, *resource;
        unsigned devices; /* devices of each GPU */
        enum place place;
        struct grant_options grant;
        struct web_server api; /* url "": no pods are read */
        const char *node;
        struct pod_bounds bounds;
};

/* Blocks SIGTERM and SIGINT, and runs until one of them comes. 0 or -errno. */
int plugin_run(const struct plugin_options *options);
